/* A libnvidia-ml.so.1 of three GPUs: two alike that work, one without sensors. Signatures as in NVIDIA's nvml.h. */
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPUS = 3, BARE = 2 };
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu, compute; } process_t;
static int places[GPUS] = {0, 1, 2};

static int place(void *device) { return *(int *)device; }
int nvmlInitWithFlags(unsigned flags) { return SUCCESS; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "580.159.04"); return SUCCESS; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 12090; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = GPUS; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &places[index]; return SUCCESS; }

int nvmlDeviceGetName(void *device, char *text, unsigned size) {
    snprintf(text, size, place(device) == BARE ? "NVIDIA Bare" : "NVIDIA H200");
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    snprintf(text, size, "GPU-%d00-aaaa", place(device));
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory) {
    *memory = (memory_t){.total = 143771ull << 20, .used = (4ull + place(device)) << 20};
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz) {
    *mhz = type == 1 ? 1980 : 1; /* 1: NVML_CLOCK_SM */
    return place(device) == BARE ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
    *celsius = 45;
    return place(device) == BARE ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    *milliwatts = 455250;
    return place(device) == BARE ? NOT_SUPPORTED : SUCCESS;
}

/* An older driver: the question has its old name only. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *mask) {
    *mask = 0x4 | 0x40;
    return place(device) == BARE ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_t *processes) {
    unsigned running = place(device) == 1 ? 2 : 0;
    if (running > *count) { *count = running; return INSUFFICIENT_SIZE; }
    *count = running;
    for (unsigned i = 0; i < running; i++) processes[i] = (process_t){.pid = 4242 - i};
    return SUCCESS;
}

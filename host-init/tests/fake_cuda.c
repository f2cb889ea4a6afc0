// A driver without a GPU: enough of libcuda.so.1 for the tests of host-init, which say in FAKE_CUDA, in one word or
// several, what befalls whoever uses it. "GPU memory" is one stretch of host memory, and a launched kernel does
// nothing.
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int Result;
enum { OK = 0, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_PTX = 218, NOT_FOUND = 500, NOT_READY = 600,
       PEERS_ALREADY = 704, TOO_MANY_PEERS = 711, REGISTERED_ALREADY = 712, LAUNCH_FAILED = 719,
       NOT_PERMITTED = 800, NOT_SUPPORTED = 801, INVALID_VALUE = 1, INVALID_IMAGE = 200,
       UNKNOWN_TO_ALL = 12345 };

static _Alignas(4096) unsigned char memory[80 << 20];
static size_t taken;
static uint64_t panic_record;
static int object, relaunching;
// Whether the kernel runs that tells the time.
static volatile int telling;

static int fake(const char *what) {
    const char *set = getenv("FAKE_CUDA");
    return set && strstr(set, what);
}

Result cuInit(unsigned flags) { return fake("no-gpu") ? NO_DEVICE : fake("strange-start") ? UNKNOWN_TO_ALL : OK; }
Result cuDriverGetVersion(int *version) { *version = 13000; return OK; }
Result cuDeviceGetCount(int *count) { *count = fake("two-gpus") ? 2 : 1; return OK; }
Result cuDeviceGet(int *device, int ordinal) { *device = ordinal; return OK; }
Result cuDeviceGetName(char *name, int length, int device) { strncpy(name, "Fake GPU", length); return OK; }
Result cuDeviceGetPCIBusId(char *address, int length, int device) {
    snprintf(address, length, "0000:%d7:00.0", device + 1);
    return OK;
}
// 75 and 76 are the compute capability's two numbers; 122 and 123 ask for words of 64 bits in streams, and for NOR.
Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    if (attribute == 122 || attribute == 123) {
        *value = !fake(attribute == 122 ? "no-stream-words" : "no-stream-nor");
        return OK;
    }
    // Bytes of the L2 cache that can be set aside, and of a window into it.
    if (attribute == 108 || attribute == 109) {
        *value = fake("no-l2") ? 0 : attribute == 108 ? 1 << 20 : 8192;
        return OK;
    }
    *value = attribute == 75 ? (fake("old-gpu") ? 7 : 9) : (fake("old-gpu") ? 5 : 0);
    return OK;
}
static int contexts[2];
static void *current;
Result cuDevicePrimaryCtxRetain(void **context, int device) { *context = &contexts[device]; return OK; }
Result cuCtxSetCurrent(void *context) { current = context; return OK; }
// Between two GPUs the way back, from 1 to 0, is what may be missing.
Result cuDeviceCanAccessPeer(int *able, int from, int to) {
    *able = from != to && !(from == 1 && fake("no-way-back"));
    return OK;
}
// 3 asks for atomics.
Result cuDeviceGetP2PAttribute(int *value, int attribute, int from, int to) {
    *value = attribute == 3 && !(from == 1 && fake("no-atomics-back"));
    return from == to ? INVALID_VALUE : OK;
}
Result cuCtxEnablePeerAccess(void *peer, unsigned flags) {
    if (fake("peers-already")) return PEERS_ALREADY;
    if (current == &contexts[1] && fake("refuses-the-way-back")) return TOO_MANY_PEERS;
    return peer == current || flags != 0 ? INVALID_VALUE : OK;
}
// Kernels that do not end any more, and how many were launched.
static int stuck, launched;
// A driver may wait here until no kernel runs, which never is where one waits for a kernel that comes later.
Result cuStreamCreate(void **stream, unsigned flags) {
    if (fake("patient") && launched) stuck = 1;
    *stream = &object;
    return OK;
}
Result cuStreamSynchronize(void *stream) { return OK; }
// Words that a stream writes and waits for; tests ask what was done: 32 or 64 for a write of so many bits, 0 for a wait.
typedef struct { uint64_t bits, address, value, flags; } Word;
static Word words_done[64];
static int words_count;
int fakeWords(Word *into) {
    memcpy(into, words_done, sizeof words_done);
    return words_count;
}
static Result word(uint64_t bits, uint64_t address, uint64_t value, unsigned flags) {
    if (fake("refuses-words") || words_count == 64) return NOT_SUPPORTED;
    words_done[words_count++] = (Word){bits, address, value, flags};
    return OK;
}
Result cuStreamWriteValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned flags) {
    if (stream != &object || address % 4 || flags > 1) return INVALID_VALUE;
    Result result = word(32, address, value, flags);
    if (result == OK) __atomic_store_n((uint32_t *)address, value, __ATOMIC_SEQ_CST);
    return result;
}
Result cuStreamWriteValue64_v2(void *stream, uint64_t address, uint64_t value, unsigned flags) {
    if (stream != &object || address % 8 || flags > 1) return INVALID_VALUE;
    Result result = word(64, address, value, flags);
    if (result == OK) __atomic_store_n((uint64_t *)address, value, __ATOMIC_SEQ_CST);
    return result;
}
// It waits in the call, because a launch in this stream runs at once; for five minutes at most, then the stream hangs.
Result cuStreamWaitValue64_v2(void *stream, uint64_t address, uint64_t value, unsigned flags) {
    // 2: a bit of both, 3: a bit of neither.
    if (stream != &object || address % 8 || (flags != 2 && flags != 3)) return INVALID_VALUE;
    Result result = word(0, address, value, flags);
    if (result != OK || fake("hang")) return result;
    for (int millis = 0; millis < 300000; millis++) {
        uint64_t found = __atomic_load_n((uint64_t *)address, __ATOMIC_SEQ_CST);
        if (flags == 2 ? (found & value) != 0 : ~(found | value) != 0) return OK;
        usleep(1000);
    }
    stuck = 1;
    return OK;
}
// An event is of a GPU; what comes behind the first one may be held up until a test lets it go on.
typedef struct { void *context; int held; } Event;
static int events, released;
void fakeRelease(void) { released = 1; }
Result cuEventCreate(void **event, unsigned flags) {
    Event *made = malloc(sizeof *made);
    *made = (Event){current, events++ == 0 && fake("holds-the-first")};
    *event = made;
    return OK;
}
// Whether what befalls kernels befalls those of the event's GPU.
static int befalls(const Event *event) {
    return !fake("on-one-alone") || event->context == &contexts[1];
}
static Result ended(const Event *event) {
    if (fake("strange-end")) return UNKNOWN_TO_ALL;
    return befalls(event) && (fake("fault") || fake("panic")) ? LAUNCH_FAILED : OK;
}
Result cuEventQuery(Event *event) {
    if (stuck || telling || (event->held && !released)) return NOT_READY;
    return befalls(event) && fake("hang") ? NOT_READY : ended(event);
}
// Behind a kernel that has broken off by now.
Result cuEventRecord(Event *event, void *stream) {
    if (event->context != current) return INVALID_VALUE;
    return fake("at-once") ? ended(event) : OK;
}
Result cuGetErrorName(Result error, const char **text) {
    *text = error == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED"
        : error == TOO_MANY_PEERS ? "CUDA_ERROR_TOO_MANY_PEERS"
        : error == NOT_PERMITTED ? "CUDA_ERROR_NOT_PERMITTED"
        : error == NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED" : NULL;
    return *text ? OK : INVALID_VALUE;
}
Result cuGetErrorString(Result error, const char **text) { return INVALID_VALUE; }

Result cuMemHostAlloc(void **start, size_t bytes, unsigned flags) {
    *start = bytes > (32 << 20) ? NULL : aligned_alloc(4096, bytes);
    return *start ? OK : OUT_OF_MEMORY;
}
Result cuMemAlloc_v2(uint64_t *start, size_t bytes) {
    if (bytes > sizeof memory - taken) return OUT_OF_MEMORY;
    *start = (uint64_t)(memory + taken);
    taken += bytes;
    return OK;
}
Result cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, void *stream) {
    memset((void *)to, byte, bytes);
    return OK;
}
Result cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    memcpy((void *)to, from, bytes);
    return OK;
}
Result cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    memcpy(to, (void *)from, bytes);
    return OK;
}
static int ours(uint64_t address) {
    return address >= (uint64_t)memory && address < (uint64_t)memory + sizeof memory;
}
// 2 is the type (2: the GPU's), 9 the GPU's number.
Result cuPointerGetAttribute(void *value, int attribute, uint64_t address) {
    if (!ours(address)) return INVALID_VALUE;
    *(int *)value = attribute == 2 ? 2 : 0;
    return OK;
}
// 6: copies wait until they are done. Tests ask for which addresses somebody wanted it.
static uint64_t synchronised[256];
static int synchronised_count;
Result cuPointerSetAttribute(const void *value, int attribute, uint64_t address) {
    if (fake("no-attribute")) return NOT_SUPPORTED;
    if (!ours(address) || attribute != 6 || *(const int *)value != 1) return INVALID_VALUE;
    synchronised[synchronised_count++ % 256] = address;
    return OK;
}
int fakeSynchronised(uint64_t address) {
    for (int at = 0; at < 256; at++)
        if (synchronised[at] == address) return 1;
    return 0;
}
Result cuMemGetAddressRange_v2(uint64_t *start, size_t *bytes, uint64_t address) {
    *start = (uint64_t)memory;
    *bytes = taken;
    return OK;
}

// A file for whole pages of "GPU memory" (1: a dmabuf), which nobody can map.
Result cuMemGetHandleForAddressRange(void *file, uint64_t start, size_t bytes, int kind, unsigned long long flags) {
    if (fake("no-dmabuf")) return NOT_SUPPORTED;
    if (!ours(start) || start % 4096 || bytes % 4096 || kind != 1) return INVALID_VALUE;
    *(int *)file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return OK;
}
// A few pages of a card's registers (1 | 2 | 4: for all contexts, mapped, not memory).
static void *registers[64];
static void **registered(void *page) {
    for (int at = 0; at < 64; at++)
        if (registers[at] == page) return &registers[at];
    return NULL;
}
Result cuMemHostRegister_v2(void *page, size_t bytes, unsigned flags) {
    if (fake("no-registers")) return NOT_PERMITTED;
    if ((uint64_t)page % 4096 || bytes != 4096 || flags != 7) return INVALID_VALUE;
    if (registered(page)) return REGISTERED_ALREADY;
    if (!registered(NULL)) return OUT_OF_MEMORY;
    *registered(NULL) = page;
    return fake("others-registered") ? REGISTERED_ALREADY : OK;
}
Result cuMemHostGetDevicePointer_v2(uint64_t *start, void *page, unsigned flags) {
    *start = (uint64_t)page;
    return registered(page) ? OK : INVALID_VALUE;
}
Result cuMemHostUnregister(void *page) {
    if (!registered(page)) return INVALID_VALUE;
    *registered(page) = NULL;
    return OK;
}
int fakeRegisters(void) {
    int count = 0;
    for (int at = 0; at < 64; at++) count += registers[at] != NULL;
    return count;
}

// The name of the kernel: that of the entry in the text, if there is one.
static char kernel[512] = "kernel";
// 5 is the place for the compiler's errors.
Result cuModuleLoadDataEx(void **module, const void *text, unsigned count, int *options, void **values) {
    if (strstr(text, "nonsense")) {
        for (unsigned at = 0; at < count; at++)
            if (options[at] == 5) strcpy(values[at], "\nptxas fatal: nonsense\nmore\n");
        return INVALID_PTX;
    }
    const char *entry = strstr(text, ".entry ");
    if (entry) sscanf(entry + 7, "%511[^(]", kernel);
    *module = strcmp(text, "linked") ? &object : &relaunching;
    return OK;
}
// Where the module looks for the GPU that it is on.
static uint64_t processor;
Result cuModuleGetGlobal_v2(uint64_t *start, size_t *bytes, void *module, const char *name) {
    if (!strcmp(name, "WARPBELL_PANIC")) {
        *start = (uint64_t)&panic_record;
        *bytes = 8;
        return OK;
    }
    if (!strcmp(name, "WARPBELL_PROCESSOR") && !fake("no-processor")) {
        *start = (uint64_t)&processor;
        *bytes = fake("short-processor") ? 4 : 8;
        return OK;
    }
    return NOT_FOUND;
}
uint64_t fakeProcessor(void) { return processor; }
// One kernel, of which blocks have at most 512 threads (0) and each thread 300 bytes of local memory (3).
Result cuModuleGetFunctionCount(unsigned *count, void *module) { *count = 1; return OK; }
Result cuModuleEnumerateFunctions(void **functions, unsigned count, void *module) {
    if (count > 0) functions[0] = module;
    return OK;
}
Result cuFuncGetName(const char **name, void *function) {
    *name = function == &relaunching ? "warpbell_relaunch" : kernel;
    return OK;
}
Result cuFuncGetAttribute(int *value, int attribute, void *function) {
    *value = attribute == 0 ? 512 : attribute == 3 ? 300 : 0;
    return OK;
}
static size_t stack_limit = 1024;
Result cuCtxGetLimit(size_t *value, int limit) { *value = stack_limit; return OK; }
// 0 is the stack's size; anything but what the kernel needs is refused. 6 is what is set aside of the L2 cache.
static size_t set_aside;
Result cuCtxSetLimit(int limit, size_t value) {
    if (limit == 6 && value <= 1 << 20) {
        set_aside = value;
        return OK;
    }
    if (limit != 0 || value < 300 || value > 4096) return INVALID_VALUE;
    stack_limit = value;
    return OK;
}
Result cuFuncLoad(void *function) { return OK; }
// One parameter of 16 bytes, or of 24.
static int is_clock(void) { return !strcmp(kernel, "warpbell_clock"); }
Result cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes) {
    *offset = 0;
    *bytes = is_clock() ? 24 : 16;
    return index == 0 ? OK : INVALID_VALUE;
}
// The GPU's time: twice the system's, from an hour before it.
uint64_t fakeTime(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 3600000000000 + 2 * (now.tv_sec * 1000000000 + now.tv_nsec);
}
// As host-init/src/trace/clock.ptx does it, of three words and so many questions; "mute" answers none.
static uint64_t clock_parameters[3];
static void *tell_time(void *nothing) {
    volatile uint64_t *words = (uint64_t *)clock_parameters[0];
    for (uint64_t number = 1; number <= clock_parameters[1] && !fake("mute"); number++) {
        while (__atomic_load_n(&words[0], __ATOMIC_ACQUIRE) < number) usleep(0);
        words[1] = fakeTime();
        __atomic_store_n(&words[2], number, __ATOMIC_RELEASE);
    }
    telling = 0;
    return nothing;
}
Result cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned block_x, unsigned block_y,
                      unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra) {
    // A driver would wait here until no kernel runs.
    if (stack_limit <= 1024) return INVALID_VALUE;
    launched++;
    // What warpbell::panic leaves: state, line, column, block, thread, the texts' lengths, the texts.
    if (fake("panic")) {
        uint32_t *words = (uint32_t *)panic_record;
        memcpy((char *)panic_record + 28, "fake.rs", 7);
        memcpy((char *)panic_record + 128, "on purpose", 10);
        uint32_t values[7] = {2, 12, 5, 3, 77, 7, 10};
        memcpy(words, values, sizeof values);
    }
    // A kernel of two words: an address, and what to store there.
    uint64_t *words = parameters[0];
    if (is_clock()) {
        pthread_t thread;
        telling = 1;
        memcpy(clock_parameters, words, sizeof clock_parameters);
        return pthread_create(&thread, NULL, tell_time, NULL) || pthread_detach(thread) ? LAUNCH_FAILED : OK;
    }
    if (!fake("hang")) *(uint64_t *)words[0] = words[1] + x * block_x;
    return OK;
}
// The same with a window into the L2 cache (1). Tests ask what is set aside, for the window, and for the number of such
// launches.
typedef struct { uint64_t start, bytes; float ratio; unsigned hit, miss; } Window;
typedef struct { unsigned id, pad; Window window; uint64_t rest[4]; } Attribute;
typedef struct {
    unsigned x, y, z, block_x, block_y, block_z, shared;
    void *stream;
    Attribute *attributes;
    unsigned count;
} Config;
static uint64_t window[4];
void fakeWindow(uint64_t *into) {
    window[0] = set_aside;
    memcpy(into, window, sizeof window);
}
Result cuLaunchKernelEx(const Config *config, void *function, void **parameters, void **extra) {
    const Attribute *given = config->attributes;
    const Window *asked = &given->window;
    if (config->count != 1 || given->id != 1) return INVALID_VALUE;
    if (asked->ratio != 1 || asked->hit != 2 || asked->miss != 0) return INVALID_VALUE;
    window[1] = asked->start;
    window[2] = asked->bytes;
    window[3]++;
    return cuLaunchKernel(function, config->x, config->y, config->z, config->block_x, config->block_y, config->block_z,
                          config->shared, config->stream, parameters, extra);
}

// PTX that ends with 0 (1), and a library (4), become a module whose kernel launches its graph again.
Result cuLinkCreate_v2(unsigned count, int *options, void **values, void **state) { *state = &object; return OK; }
Result cuLinkAddData_v2(void *state, int kind, const char *data, size_t bytes, const char *name, unsigned count,
                        int *options, void **values) {
    if (kind == 1) return !data[bytes - 1] && strstr(data, "cudaGraphLaunch") ? OK : INVALID_PTX;
    return kind == 4 && bytes >= 8 && !memcmp(data, "!<arch>\n", 8) ? OK : INVALID_IMAGE;
}
Result cuLinkComplete(void *state, void **image, size_t *bytes) { *image = "linked"; *bytes = 7; return OK; }
Result cuLinkDestroy(void *state) { return OK; }

// Graphs of kernels in a row.
typedef struct { void *function; unsigned x, y, z, block_x, block_y, block_z, shared; void **parameters; } Params;
typedef struct { void *function; uint64_t words[5], threads; } Node;
typedef struct { Node nodes[8]; int count, uploaded; } Graph;
static Graph graphs[16];
static int graph_count;
Result cuGraphCreate(Graph **graph, unsigned flags) {
    if (graph_count == 16) return OUT_OF_MEMORY;
    *graph = &graphs[graph_count++];
    return OK;
}
Result cuGraphAddKernelNode_v2(Node **made, Graph *graph, Node **before, size_t count, const Params *params) {
    int nodes = graph->count;
    if (count != (nodes > 0) || (count && *before != &graph->nodes[nodes - 1])) return INVALID_VALUE;
    Node *node = &graph->nodes[graph->count++];
    node->function = params->function;
    node->threads = (uint64_t)params->x * params->block_x;
    // That kernel has five parameters of a word, the other one of two words.
    uint64_t **from = (uint64_t **)params->parameters;
    if (params->function == &relaunching)
        for (int at = 0; at < 5; at++) node->words[at] = from[at][0];
    else
        memcpy(node->words, from[0], 16);
    *made = node;
    return OK;
}
// 4: the GPU may launch it.
Result cuGraphInstantiateWithFlags(Graph **ready, Graph *graph, unsigned long long flags) {
    if (fake("refuses-the-second") && graph == &graphs[1]) return NOT_SUPPORTED;
    *ready = graph;
    return flags == 4 ? OK : INVALID_VALUE;
}
Result cuGraphDestroy(void *graph) { return OK; }
static int destroyed;
int fakeGraphsDestroyed(void) { return destroyed; }
Result cuGraphExecDestroy(void *ready) { destroyed++; return OK; }
Result cuGraphUpload(Graph *ready, void *stream) { ready->uploaded = 1; return OK; }
static void run_kernel(const Node *node) { *(uint64_t *)node->words[0] = node->words[1] + node->threads; }
// The relaunching kernel, as its PTX has it: stop, refusal, choice, branches, count. Whether there is another round.
static int relaunch(const uint64_t *words, int round) {
    uint64_t *refusal = (uint64_t *)words[1], *choice = (uint64_t *)words[2], *branches = (uint64_t *)words[3];
    uint64_t chosen = choice ? *choice : 0;
    if (chosen) {
        *choice = 0;
        Graph *branch = chosen <= words[4] ? (Graph *)branches[chosen - 1] : NULL;
        // An error of the device runtime's, if the graph cannot be launched.
        uint64_t error = !branch ? 0 : !branch->uploaded || fake("no-branch-launch") ? 700 : 0;
        if (!branch || error) {
            *refusal = chosen << 32 | error;
            return 0;
        }
        for (int at = 0; at < branch->count; at++) run_kernel(&branch->nodes[at]);
    }
    if (*(uint64_t *)words[0]) return 0;
    if (fake("no-relaunch") && round == 2) {
        *refusal = 900 + round;
        return 0;
    }
    return 1;
}
Result cuGraphLaunch(Graph *ready, void *stream) {
    if (!ready->uploaded) return INVALID_VALUE;
    for (int round = 0; round < 1000; round++) {
        int last = ready->count - 1;
        for (int at = 0; at < last; at++) run_kernel(&ready->nodes[at]);
        if (!relaunch(ready->nodes[last].words, round)) return OK;
    }
    return LAUNCH_FAILED;
}

// What cust calls besides; it links with the driver, so that a function that is not there is an error of the build.
static int freed, unloaded;
int fakeFreed(void) { return freed; }
int fakeUnloaded(void) { return unloaded; }

Result cuCtxGetDevice(int *device) { *device = 0; return OK; }
Result cuDevicePrimaryCtxRelease_v2(int device) { return OK; }
Result cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) { *stream = &object; return OK; }
Result cuStreamDestroy_v2(void *stream) { return OK; }
Result cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = &object;
    return strcmp(name, "kernel") ? NOT_FOUND : OK;
}
Result cuModuleUnload(void *module) { unloaded++; return OK; }
Result cuMemAllocHost_v2(void **start, size_t bytes) {
    *start = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *start ? OK : OUT_OF_MEMORY;
}
Result cuMemFreeHost(void *start) { freed++; return OK; }
Result cuMemFree_v2(uint64_t start) { freed++; return OK; }
Result cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) { memcpy((void *)to, from, bytes); return OK; }
Result cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { memcpy(to, (void *)from, bytes); return OK; }

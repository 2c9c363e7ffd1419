// TEST ONLY: a libcuda.so.1 that runs .cu kernels on the CPU, so that the real PyCUDA works on a machine with no GPU.
//
// It is stricter than a GPU. Memory is NaN until written, shared memory at the start of each block too. An allocation
// ends at a guard page, so that reading one element too many is an error, as is every pointer or size that lies outside
// a live allocation. Threads of a block run in a chosen order, each until it ends or meets __syncthreads; a barrier that
// not all of them meet is an error. Copies from the host on a stream wait until somebody waits for them. Not here: warps,
// kernels of several streams at once, races between blocks.
//
// What is wrong is told on stderr and by emulated_complaint().
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <elf.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

typedef int Result;
typedef unsigned long long Pointer;
typedef void* Handle;
enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, UNAVAILABLE = 46, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
       INVALID_CONTEXT = 201, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719 };

struct uint3 { unsigned x, y, z; };
extern "C" { uint3 emulated_thread, emulated_block, emulated_block_size, emulated_grid_size; char* emulated_dynamic_shared; }
struct EmulatedKernel { char signature[64]; void (*run)(void**); char *shared_begin, *shared_end; };

// -- what tests set and ask --------------------------------------------------------------------------------------------

static int thread_order = 0;  // 0 forward, 1 reversed, 2 shuffled
static uint32_t shuffle_state = 1;
static size_t memory_from_environment() {
    const char* text = getenv("EMULATED_CUDA_MEMORY");  // bytes
    return text ? strtoull(text, nullptr, 10) : size_t(1) << 33;
}
static size_t memory_total = memory_from_environment(), memory_used = 0;
static long launches = 0;
static char complaint[512] = "";

API void emulated_set_order(int order, unsigned seed) { thread_order = order; shuffle_state = seed | 1; }
API void emulated_set_memory(size_t bytes) { memory_total = bytes; }
API size_t emulated_memory_used() { return memory_used; }
API long emulated_launches() { return launches; }
API const char* emulated_complaint() { return complaint; }

static Result complain(Result code, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaint, sizeof complaint, format, arguments);
    va_end(arguments);
    fprintf(stderr, "emulated CUDA: %s\n", complaint);
    return code;
}

// -- memory ------------------------------------------------------------------------------------------------------------

struct Allocation { size_t size; char* base; size_t mapped; };
static std::map<Pointer, Allocation> live;
static const size_t PAGE = 4096;

static bool inside(Pointer p, size_t size) {
    auto next = live.upper_bound(p);
    if (next == live.begin()) return false;
    --next;
    return p + size <= next->first + next->second.size;
}
API int emulated_inside(const void* p, size_t size) { return inside((Pointer)p, size); }

static Result outside(const char* function, Pointer p, size_t size) {
    return complain(INVALID, "%s: [0x%llx, +%zu) is not inside a live allocation", function, p, size);
}

// With EMULATED_CUDA_STICKY a kernel that fails leaves the context broken, as on a GPU.
static Result broken = OK;
static std::vector<Handle> contexts;
#define NEED_CONTEXT if (contexts.empty() || broken) return broken ? broken : INVALID_CONTEXT

API Result cuMemAlloc_v2(Pointer* p, size_t size) {
    NEED_CONTEXT;
    if (!size) return complain(INVALID, "cuMemAlloc: 0 bytes");
    if (memory_used + size > memory_total) return OUT_OF_MEMORY;
    size_t body = (size + PAGE - 1) / PAGE * PAGE, rounded = (size + 3) & ~size_t(3);
    char* base = (char*)mmap(nullptr, body + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return OUT_OF_MEMORY;
    mprotect(base + PAGE, body, PROT_READ | PROT_WRITE);
    memset(base + PAGE, 0xFF, body);
    *p = (Pointer)(base + PAGE + body - rounded);
    live[*p] = {size, base, body + 2 * PAGE};
    memory_used += size;
    return OK;
}
// Copies from the host on a stream are put off until somebody waits for them, so that what does not wait reads NaN, and what
// changes the host's array too early spoils the copy.
struct Copy { Pointer to; const void* from; size_t size; };
struct Queue { std::vector<Copy> copies; size_t done = 0; };  // copies from done on are under way
static std::map<Handle, Queue> queues;

static Result carry_out(Handle stream, size_t end) {
    Queue& queue = queues[stream];
    for (; queue.done < end && queue.done < queue.copies.size(); queue.done++) {
        const Copy& copy = queue.copies[queue.done];
        if (!inside(copy.to, copy.size)) return outside("cuMemcpyHtoDAsync, by now", copy.to, copy.size);
        memcpy((void*)copy.to, copy.from, copy.size);
    }
    return OK;
}

API Result cuMemFree_v2(Pointer p) {
    if (broken) return broken;
    auto found = live.find(p);
    if (found == live.end()) return outside("cuMemFree", p, 0);
    for (auto& each : queues)
        for (size_t i = each.second.done; i < each.second.copies.size(); i++) {
            const Copy& copy = each.second.copies[i];
            if (copy.to >= p && copy.to < p + found->second.size)
                return complain(INVALID, "cuMemFree: a copy to 0x%llx is still under way", copy.to);
        }
    munmap(found->second.base, found->second.mapped);
    memory_used -= found->second.size;
    live.erase(found);
    return OK;
}
API Result cuMemGetInfo_v2(size_t* unused, size_t* total) {
    NEED_CONTEXT;
    *unused = memory_used < memory_total ? memory_total - memory_used : 0;
    *total = memory_total;
    return OK;
}
API Result cuMemGetAddressRange_v2(Pointer* base, size_t* size, Pointer p) {
    auto next = live.upper_bound(p);
    if (next == live.begin()) return INVALID;
    --next;
    if (base) *base = next->first;
    if (size) *size = next->second.size;
    return OK;
}
API Result cuMemcpyHtoD_v2(Pointer to, const void* from, size_t size) {
    NEED_CONTEXT;
    if (!inside(to, size)) return outside("cuMemcpyHtoD", to, size);
    memcpy((void*)to, from, size);
    return OK;
}
API Result cuMemcpyDtoH_v2(void* to, Pointer from, size_t size) {
    NEED_CONTEXT;
    if (!inside(from, size)) return outside("cuMemcpyDtoH", from, size);
    memcpy(to, (void*)from, size);
    return OK;
}
API Result cuMemcpyDtoD_v2(Pointer to, Pointer from, size_t size) {
    NEED_CONTEXT;
    if (!inside(from, size)) return outside("cuMemcpyDtoD, source", from, size);
    if (!inside(to, size)) return outside("cuMemcpyDtoD, target", to, size);
    memmove((void*)to, (void*)from, size);
    return OK;
}
API Result cuMemsetD8_v2(Pointer p, unsigned char value, size_t count) {
    NEED_CONTEXT;
    if (!inside(p, count)) return outside("cuMemsetD8", p, count);
    memset((void*)p, value, count);
    return OK;
}
API Result cuMemsetD32_v2(Pointer p, unsigned value, size_t count) {
    NEED_CONTEXT;
    if (!inside(p, 4 * count)) return outside("cuMemsetD32", p, 4 * count);
    for (size_t i = 0; i < count; i++) ((unsigned*)p)[i] = value;
    return OK;
}
API Result cuMemcpyHtoDAsync_v2(Pointer to, const void* from, size_t size, Handle stream) {
    NEED_CONTEXT;
    if (!inside(to, size)) return outside("cuMemcpyHtoDAsync", to, size);
    queues[stream].copies.push_back({to, from, size});
    return OK;
}
API Result cuMemcpyDtoHAsync_v2(void* to, Pointer from, size_t size, Handle) { return cuMemcpyDtoH_v2(to, from, size); }
API Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t size, Handle) { return cuMemcpyDtoD_v2(to, from, size); }
API Result cuMemsetD8Async(Pointer p, unsigned char value, size_t count, Handle) { return cuMemsetD8_v2(p, value, count); }
API Result cuMemsetD32Async(Pointer p, unsigned value, size_t count, Handle) { return cuMemsetD32_v2(p, value, count); }
API Result cuMemHostAlloc(void** p, size_t size, unsigned) { *p = malloc(size ? size : 1); return OK; }
API Result cuMemFreeHost(void* p) { free(p); return OK; }
API Result cuMemHostRegister_v2(void*, size_t, unsigned) { return OK; }
API Result cuMemHostUnregister(void*) { return OK; }

// -- device, context, streams, events ------------------------------------------------------------------------------------

static int devices() { const char* text = getenv("EMULATED_CUDA_DEVICES"); return text ? atoi(text) : 1; }

API Result cuInit(unsigned) {
    const char* text = getenv("EMULATED_CUDA_INIT");  // the code that it fails with
    return text ? atoi(text) : devices() ? OK : NO_DEVICE;
}
API Result cuDriverGetVersion(int* version) { *version = 13000; return OK; }
API Result cuDeviceGetCount(int* count) { *count = devices(); return OK; }
API Result cuDeviceGet(int* device, int ordinal) { *device = ordinal; return ordinal < devices() ? OK : INVALID_DEVICE; }
API Result cuDeviceGetName(char* text, int size, int) { snprintf(text, size, "emulated on the CPU"); return OK; }
API Result cuDeviceTotalMem_v2(size_t* size, int) { *size = memory_total; return OK; }
API Result cuDeviceComputeCapability(int* major, int* minor, int) { *major = 9; *minor = 0; return OK; }
API Result cuDeviceGetAttribute(int* value, int attribute, int) {
    switch (attribute) {
        case 1: case 2: case 3: *value = 1024; break;  // threads per block, and along x and y
        case 4: *value = 64; break;
        case 5: *value = 2147483647; break;
        case 6: case 7: *value = 65535; break;
        case 8: *value = 49152; break;  // shared memory per block
        case 10: *value = 32; break;
        case 16: *value = 2; break;  // multiprocessors
        case 75: *value = 9; break;
        default: *value = 0;
    }
    return OK;
}
API Result cuDevicePrimaryCtxRetain(Handle* context, int device) {
    const char* busy = getenv("EMULATED_CUDA_BUSY");  // the device that another process has for itself
    *context = (Handle)0x1000;
    return busy && atoi(busy) == device ? UNAVAILABLE : OK;
}
API Result cuDevicePrimaryCtxRelease_v2(int) { return OK; }
API Result cuCtxPushCurrent_v2(Handle context) { contexts.push_back(context); return OK; }
API Result cuCtxPopCurrent_v2(Handle* context) {
    if (contexts.empty()) return INVALID_CONTEXT;
    if (context) *context = contexts.back();
    contexts.pop_back();
    return OK;
}
API Result cuCtxGetCurrent(Handle* context) { *context = contexts.empty() ? nullptr : contexts.back(); return OK; }
API Result cuCtxGetDevice(int* device) { NEED_CONTEXT; *device = 0; return OK; }
API Result cuCtxSynchronize() {
    NEED_CONTEXT;
    for (auto& each : queues)
        if (Result result = carry_out(each.first, each.second.copies.size())) return result;
    return OK;
}
API Result cuCtxGetApiVersion(Handle, unsigned* version) { *version = 13000; return OK; }
API Result cuCtxDetach(Handle) { return OK; }
API Result cuStreamCreate(Handle* stream, unsigned) { NEED_CONTEXT; static intptr_t next = 0x5000; *stream = (Handle)next++; return OK; }
API Result cuStreamDestroy_v2(Handle) { return OK; }
API Result cuStreamSynchronize(Handle stream) { NEED_CONTEXT; return carry_out(stream, queues[stream].copies.size()); }
API Result cuStreamQuery(Handle) { return OK; }

// copies: how many had been asked for on the stream when the event was recorded.
struct Event { timespec time; Handle stream; size_t copies; };
static Result wait_for(Handle handle) { NEED_CONTEXT; Event* event = (Event*)handle; return carry_out(event->stream, event->copies); }

API Result cuStreamWaitEvent(Handle, Handle event, unsigned) { return wait_for(event); }
API Result cuEventCreate(Handle* event, unsigned) { NEED_CONTEXT; *event = new Event(); return OK; }
API Result cuEventDestroy_v2(Handle event) { delete (Event*)event; return OK; }
API Result cuEventRecord(Handle handle, Handle stream) {
    NEED_CONTEXT;
    Event* event = (Event*)handle;
    event->stream = stream;
    event->copies = queues[stream].copies.size();
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    return OK;
}
API Result cuEventSynchronize(Handle event) { return wait_for(event); }
API Result cuEventQuery(Handle) { return OK; }
API Result cuEventElapsedTime(float* ms, Handle from, Handle to) {
    timespec &a = ((Event*)from)->time, &b = ((Event*)to)->time;
    *ms = (b.tv_sec - a.tv_sec) * 1e3f + (b.tv_nsec - a.tv_nsec) * 1e-6f;
    return OK;
}
API Result cuEventElapsedTime_v2(float* ms, Handle from, Handle to) { return cuEventElapsedTime(ms, from, to); }
// As the driver words them.
API Result cuGetErrorString(Result code, const char** text) {
    switch (code) {
        case INVALID: *text = "invalid argument"; break;
        case OUT_OF_MEMORY: *text = "out of memory"; break;
        case UNAVAILABLE: *text = "CUDA-capable device(s) is/are busy or unavailable"; break;
        case NO_DEVICE: *text = "no CUDA-capable device is detected"; break;
        case INVALID_DEVICE: *text = "invalid device ordinal"; break;
        case INVALID_IMAGE: *text = "device kernel image is invalid"; break;
        case INVALID_CONTEXT: *text = "invalid device context"; break;
        case NOT_FOUND: *text = "named symbol not found"; break;
        case ILLEGAL_ADDRESS: *text = "an illegal memory access was encountered"; break;
        case LAUNCH_FAILED: *text = "unspecified launch failure"; break;
        default: *text = "another error";
    }
    return OK;
}
API Result cuGetErrorName(Result, const char** text) { *text = "CUDA_ERROR"; return OK; }

// -- running one block ---------------------------------------------------------------------------------------------------

struct Fiber { void* stack_pointer; char* stack; int state; uint3 thread; int site; unsigned met; };
enum { RUNNING, WAITING, DONE };
static const size_t STACK = 64 * 1024;
static Fiber home, *current;
static std::vector<Fiber*> pool;
static const EmulatedKernel* running;
static void** running_arguments;
static std::vector<unsigned> order;
static unsigned next_thread;
static sigjmp_buf abandon;
static volatile int in_kernel;

extern "C" void emulated_switch(void** save, void* load);
__asm__(R"(
.text
.globl emulated_switch
.hidden emulated_switch
.type emulated_switch,@function
emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_switch,.-emulated_switch
)");

static void leave() { Fiber* self = current; emulated_switch(&self->stack_pointer, home.stack_pointer); }

API void emulated_barrier(int site) {
    current->state = WAITING;
    current->site = site;
    current->met++;
    leave();
}

// Runs threads one after another until one of them meets a barrier: a kernel without barriers needs one fiber.
static void fiber_main() {
    Fiber* self = current;
    while (next_thread < order.size()) {
        unsigned i = order[next_thread++];
        const uint3& size = emulated_block_size;
        self->thread = emulated_thread = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
        running->run(running_arguments);
        if (self->met) break;
    }
    self->state = DONE;
    leave();
    abort();
}

static void enter(Fiber* fiber) {
    current = fiber;
    fiber->state = RUNNING;
    emulated_thread = fiber->thread;
    emulated_switch(&home.stack_pointer, fiber->stack_pointer);
}

static Fiber* new_fiber(size_t index) {
    if (index == pool.size()) {
        Fiber* fiber = new Fiber();
        fiber->stack = (char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        pool.push_back(fiber);
    }
    Fiber* fiber = pool[index];
    void** top = (void**)(((uintptr_t)fiber->stack + STACK) & ~(uintptr_t)15);
    *--top = nullptr;
    *--top = (void*)fiber_main;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    fiber->stack_pointer = top;
    fiber->met = 0;
    return fiber;
}

static void fail(const char* what) {
    complain(LAUNCH_FAILED, "%s (block %u,%u,%u)", what, emulated_block.x, emulated_block.y, emulated_block.z);
    siglongjmp(abandon, LAUNCH_FAILED);
}

static void run_block(unsigned dynamic_shared) {
    if (running->shared_begin) memset(running->shared_begin, 0xFF, running->shared_end - running->shared_begin);
    if (dynamic_shared) memset(emulated_dynamic_shared, 0xFF, dynamic_shared);
    std::vector<Fiber*> waiting, again;
    bool ended = false;
    next_thread = 0;
    for (size_t used = 0; next_thread < order.size();) {
        Fiber* fiber = new_fiber(used++);
        unsigned before = next_thread;
        enter(fiber);
        if (fiber->state == WAITING) waiting.push_back(fiber);
        ended = ended || fiber->state == DONE || next_thread - before > 1;
    }
    while (!waiting.empty()) {
        if (ended) fail("divergent barrier: some threads have ended while others wait at __syncthreads()");
        for (Fiber* fiber : waiting)
            if (fiber->site != waiting[0]->site) fail("divergent barrier: threads wait at two different __syncthreads()");
        again.clear();
        for (Fiber* fiber : waiting) {
            enter(fiber);
            if (fiber->state == WAITING) again.push_back(fiber);
            else ended = true;
        }
        waiting.swap(again);
    }
}

static void on_fault(int signal_number, siginfo_t* info, void*) {
    if (in_kernel) {
        complain(ILLEGAL_ADDRESS, "illegal memory access at %p (block %u,%u,%u thread %u,%u,%u)", info->si_addr,
                 emulated_block.x, emulated_block.y, emulated_block.z, emulated_thread.x, emulated_thread.y, emulated_thread.z);
        siglongjmp(abandon, ILLEGAL_ADDRESS);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void arrange_threads(unsigned count) {
    order.resize(count);
    for (unsigned i = 0; i < count; i++) order[i] = thread_order == 1 ? count - 1 - i : i;
    if (thread_order == 2)
        for (unsigned i = count; i > 1; i--) {
            shuffle_state = shuffle_state * 1664525u + 1013904223u;
            std::swap(order[i - 1], order[(shuffle_state >> 8) % i]);
        }
}

static Result run_grid(const EmulatedKernel* kernel, void** arguments, uint3 grid, uint3 block, unsigned dynamic_shared) {
    static char* signal_stack = (char*)malloc(65536);
    stack_t mine = {}, before_stack;
    mine.ss_sp = signal_stack;
    mine.ss_size = 65536;
    sigaltstack(&mine, &before_stack);
    struct sigaction action = {}, before_segv, before_fpe;
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before_segv);
    sigaction(SIGFPE, &action, &before_fpe);
    running = kernel;
    running_arguments = arguments;
    emulated_grid_size = grid;
    emulated_block_size = block;
    static std::vector<char> shared;
    shared.resize(dynamic_shared + 64);
    emulated_dynamic_shared = (char*)(((uintptr_t)shared.data() + 63) & ~(uintptr_t)63);
    in_kernel = 1;
    Result result = sigsetjmp(abandon, 1);
    if (result == OK)
        for (unsigned z = 0; z < grid.z; z++)
            for (unsigned y = 0; y < grid.y; y++)
                for (unsigned x = 0; x < grid.x; x++) {
                    if (thread_order == 2 || (x | y | z) == 0) arrange_threads(block.x * block.y * block.z);
                    emulated_block = {x, y, z};
                    run_block(dynamic_shared);
                }
    in_kernel = 0;
    sigaction(SIGSEGV, &before_segv, nullptr);
    sigaction(SIGFPE, &before_fpe, nullptr);
    sigaltstack(&before_stack, nullptr);
    return result;
}

// -- modules and launches --------------------------------------------------------------------------------------------------

struct Function { std::string name; const EmulatedKernel* kernel; unsigned block[3], shared, size; char buffer[4096]; };

API Result cuModuleLoadData(Handle* module, const void* image) {
    NEED_CONTEXT;
    const Elf64_Ehdr* header = (const Elf64_Ehdr*)image;
    if (memcmp(header->e_ident, ELFMAG, 4) || header->e_machine != EM_X86_64) return INVALID_IMAGE;
    dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);  // so that the module finds what device.h names
    size_t size = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
    int file = memfd_create("emulated_module", 0);  // stays open: dlopen knows a library by its path
    if (write(file, image, size) != (ssize_t)size) return INVALID_IMAGE;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return *module ? OK : complain(INVALID_IMAGE, "%s", dlerror());
}
API Result cuModuleLoadDataEx(Handle* module, const void* image, unsigned, void*, void*) { return cuModuleLoadData(module, image); }
API Result cuModuleUnload(Handle) { return OK; }
API Result cuModuleGetFunction(Handle* function, Handle module, const char* name) {
    auto kernel = (const EmulatedKernel*)dlsym(module, (std::string("emulated_kernel_") + name).c_str());
    if (!kernel) return NOT_FOUND;
    *function = new Function{name, kernel, {1, 1, 1}, 0, 0, {}};
    return OK;
}
API Result cuFuncGetAttribute(int* value, int attribute, Handle) { *value = attribute == 0 ? 1024 : 0; return OK; }
API Result cuFuncSetCacheConfig(Handle, int) { return OK; }

static size_t size_of(char letter) { return strchr("PqQd", letter) ? 8 : 4; }

API Result cuLaunchKernel(Handle handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, Handle, void** arguments, void** extra) {
    NEED_CONTEXT;
    Function* function = (Function*)handle;
    const char *name = function->name.c_str(), *signature = function->kernel->signature;
    if (!gx || !gy || !gz || !bx || !by || !bz || bx > 1024 || by > 1024 || bz > 64 || (size_t)bx * by * bz > 1024 ||
        gx > 2147483647u || gy > 65535 || gz > 65535 || shared > 49152)
        return complain(INVALID, "%s: impossible launch, grid (%u,%u,%u) block (%u,%u,%u) shared %u", name, gx, gy, gz, bx, by, bz, shared);
    std::vector<void*> values;
    if (arguments) {
        for (size_t i = 0; signature[i]; i++) values.push_back(arguments[i]);
    } else if (extra) {
        char* buffer = nullptr;
        size_t size = 0, offset = 0;
        for (int i = 0; extra[i]; i += 2) {
            if ((intptr_t)extra[i] == 1) buffer = (char*)extra[i + 1];
            if ((intptr_t)extra[i] == 2) size = *(size_t*)extra[i + 1];
        }
        for (const char* letter = signature; *letter; letter++) {
            size_t width = size_of(*letter);
            offset = (offset + width - 1) & ~(width - 1);
            values.push_back(buffer + offset);
            offset += width;
        }
        if (offset != size)
            return complain(INVALID, "%s(%s): arguments of %zu bytes, the kernel takes %zu", name, signature, size, offset);
    }
    for (size_t i = 0; signature[i]; i++) {
        Pointer p = signature[i] == 'P' ? *(Pointer*)values[i] : 0;
        if (p && !inside(p, 1)) return complain(ILLEGAL_ADDRESS, "%s: argument %zu (0x%llx) is no live device pointer", name, i, p);
    }
    launches++;
    Result result = run_grid(function->kernel, values.data(), {gx, gy, gz}, {bx, by, bz}, shared);
    if (result) {
        if (getenv("EMULATED_CUDA_STICKY")) broken = result;
        char text[sizeof complaint];
        snprintf(text, sizeof text, "%s", complaint);
        return complain(result, "%.100s: %.390s", name, text);
    }
    return OK;
}

// The older way, which PyCUDA still goes.
API Result cuFuncSetBlockShape(Handle f, int x, int y, int z) {
    Function* function = (Function*)f;
    function->block[0] = x, function->block[1] = y, function->block[2] = z;
    return OK;
}
API Result cuFuncSetSharedSize(Handle f, unsigned size) { ((Function*)f)->shared = size; return OK; }
API Result cuParamSetSize(Handle f, unsigned size) { ((Function*)f)->size = size; return OK; }
API Result cuParamSetv(Handle f, int offset, void* value, unsigned size) {
    if (offset + size > sizeof(Function::buffer)) return INVALID;
    memcpy(((Function*)f)->buffer + offset, value, size);
    return OK;
}
API Result cuLaunchGrid(Handle f, int x, int y) {
    Function* function = (Function*)f;
    size_t size = function->size;
    void* extra[] = {(void*)1, function->buffer, (void*)2, &size, nullptr};
    const unsigned* block = function->block;
    return cuLaunchKernel(f, x, y, 1, block[0], block[1], block[2], function->shared, nullptr, nullptr, extra);
}
API Result cuLaunchGridAsync(Handle f, int x, int y, Handle) { return cuLaunchGrid(f, x, y); }
API Result cuProfilerStart() { return OK; }
API Result cuProfilerStop() { return OK; }

/* Loaded into linux.uml on processors whose registers are larger than it knows.
 *
 * User-Mode Linux gives a process its floating-point registers back by PTRACE_SETREGSET, from a buffer whose size is fixed when it
 * is compiled. The host's kernel takes the whole of its own layout or nothing, and on a processor with tile registers (AMX) that
 * is larger: the guest dies at its first process. Here the guest's part is laid over the whole that the host has just told; tile
 * registers are left as they are at birth, for no program gets to use them in a guest. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

/* NT_X86_XSTATE of the kernel's elf.h. */
#define XSTATE 0x202
/* Where the processor's layout says which parts are in use, and the bits of the tiles there. */
#define IN_USE 512
#define TILES ((uint64_t)3 << 17)

typedef long (*original)(enum __ptrace_request, pid_t, void *, void *);

long ptrace(enum __ptrace_request request, ...)
{
    /* linux.uml has one thread that traces. */
    static original ptrace_of_libc;
    static char whole[64 << 10];

    va_list arguments;
    va_start(arguments, request);
    pid_t pid = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *);
    void *data = va_arg(arguments, void *);
    va_end(arguments);

    if (!ptrace_of_libc)
        ptrace_of_libc = (original)dlsym(RTLD_NEXT, "ptrace");
    if (request != PTRACE_SETREGSET || (uintptr_t)address != XSTATE)
        return ptrace_of_libc(request, pid, address, data);

    const struct iovec *part = data;
    struct iovec host = { whole, sizeof whole };
    if (ptrace_of_libc(PTRACE_GETREGSET, pid, address, &host) < 0 || host.iov_len <= part->iov_len)
        return ptrace_of_libc(request, pid, address, data);
    memcpy(whole, part->iov_base, part->iov_len);
    uint64_t in_use;
    memcpy(&in_use, whole + IN_USE, sizeof in_use);
    in_use &= ~TILES;
    memcpy(whole + IN_USE, &in_use, sizeof in_use);
    return ptrace_of_libc(request, pid, address, &host);
}

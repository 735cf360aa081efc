// The system calls that the C library would import so that the C++ runtime can write to a terminal before it stops.
// A page has none: they fail here, and the module imports nothing.
#include <wasi/api.h>

#include <cstddef>

extern "C" {
__wasi_errno_t __wasi_fd_write(__wasi_fd_t, const __wasi_ciovec_t*, std::size_t, __wasi_size_t*) { return __WASI_ERRNO_BADF; }
__wasi_errno_t __wasi_fd_seek(__wasi_fd_t, __wasi_filedelta_t, __wasi_whence_t, __wasi_filesize_t*) { return __WASI_ERRNO_BADF; }
__wasi_errno_t __wasi_fd_close(__wasi_fd_t) { return __WASI_ERRNO_BADF; }
__wasi_errno_t __wasi_fd_fdstat_get(__wasi_fd_t, __wasi_fdstat_t*) { return __WASI_ERRNO_BADF; }
[[noreturn]] void abort_message(const char*, ...) { __builtin_trap(); }
int __cxa_atexit(void (*)(void*), void*, void*) { return 0; }  // a module is never unloaded
}

// What the C library would import from its host so that the C++ runtime can write to a terminal before it stops. A page
// has none: the calls are defined here, they fail, and the module imports nothing. The library's name of an import is
// __imported_, the host's module and the function; a 64-bit integer is an offset.
namespace {
constexpr int kBadFile = 8;  // the host interface's EBADF
}

extern "C" {
int __imported_wasi_snapshot_preview1_fd_write(int, int, int, int) { return kBadFile; }
int __imported_wasi_snapshot_preview1_fd_seek(int, long long, int, int) { return kBadFile; }
int __imported_wasi_snapshot_preview1_fd_close(int) { return kBadFile; }
[[noreturn]] void abort_message(const char*, ...) { __builtin_trap(); }
int __cxa_atexit(void (*)(void*), void*, void*) { return 0; }  // a module is never unloaded
}

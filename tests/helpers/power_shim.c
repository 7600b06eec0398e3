/* Logs what a process does to the files below $POWER_ROOT, in order, to the file $POWER_LOG. Preloaded with LD_PRELOAD.
   A record: kind (1 byte), fd (4), offset (8), length (8), then that many bytes: data, or a path (two for a rename). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char ours[4096];
static int out = -1;

static int below(const char *path) {
    const char *root = getenv("POWER_ROOT");
    return root && path && strncmp(path, root, strlen(root)) == 0;
}
static void note(char kind, int fd, int64_t offset, const void *data, int64_t length) {
    const char *file = getenv("POWER_LOG");
    pthread_mutex_lock(&lock);
    if (out < 0 && file) out = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    char head[21];
    head[0] = kind;
    memcpy(head + 1, &fd, 4);
    memcpy(head + 5, &offset, 8);
    memcpy(head + 13, &length, 8);
    struct iovec parts[2] = {{head, 21}, {(void *)data, (size_t)length}};
    if (out >= 0) syscall(SYS_writev, out, parts, length ? 2 : 1);
    pthread_mutex_unlock(&lock);
}
static int is_ours(int fd) { return fd >= 0 && fd < 4096 && ours[fd]; }
static int opened(int fd, const char *path, int flags) {
    if (fd >= 0 && fd < 4096) ours[fd] = below(path);
    if (is_ours(fd)) note('o', fd, flags & O_TRUNC ? 1 : 0, path, strlen(path));
    return fd;
}
#define MODE(flags) int mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list a; va_start(a, flags); mode = va_arg(a, int); va_end(a); }
int open(const char *path, int flags, ...) { MODE(flags) return opened(syscall(SYS_openat, AT_FDCWD, path, flags, mode), path, flags); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(syscall(SYS_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode), path, flags); }
int openat(int at, const char *path, int flags, ...) { MODE(flags) return opened(syscall(SYS_openat, at, path, flags, mode), path, flags); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags) return opened(syscall(SYS_openat, at, path, flags | O_LARGEFILE, mode), path, flags); }
int close(int fd) { if (fd >= 0 && fd < 4096) ours[fd] = 0; return REAL(close)(fd); }
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) { ssize_t done = REAL(pwrite)(fd, data, n, at); if (done > 0 && is_ours(fd)) note('w', fd, at, data, done); return done; }
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) { ssize_t done = REAL(pwrite64)(fd, data, n, at); if (done > 0 && is_ours(fd)) note('w', fd, at, data, done); return done; }
ssize_t write(int fd, const void *data, size_t n) { off_t at = is_ours(fd) ? lseek(fd, 0, SEEK_CUR) : 0; ssize_t done = REAL(write)(fd, data, n); if (done > 0 && is_ours(fd)) note('w', fd, at, data, done); return done; }
int ftruncate(int fd, off_t n) { int r = REAL(ftruncate)(fd, n); if (!r && is_ours(fd)) note('t', fd, n, "", 0); return r; }
int ftruncate64(int fd, off64_t n) { int r = REAL(ftruncate64)(fd, n); if (!r && is_ours(fd)) note('t', fd, n, "", 0); return r; }
int fsync(int fd) { if (is_ours(fd)) note('s', fd, 0, "", 0); return 0; }
int fdatasync(int fd) { if (is_ours(fd)) note('s', fd, 0, "", 0); return 0; }
int unlink(const char *path) { int r = REAL(unlink)(path); if (!r && below(path)) note('u', -1, 0, path, strlen(path)); return r; }
int rename(const char *from, const char *to) {
    int r = REAL(rename)(from, to);
    if (!r && below(to)) { char both[8192]; int n = snprintf(both, sizeof both, "%s%c%s", from, 0, to); note('r', -1, 0, both, n); }
    return r;
}

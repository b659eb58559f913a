/* Loaded into a service (LD_PRELOAD) so that its disk is slow or read-only and its clock jumps: things that cannot be had
 * otherwise without root, or that cannot be undone. A file that both sides map says how: milliseconds that each sync takes
 * longer, seconds that the time of day is ahead, whether the disk is read-only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(name, ...)                                                                                                        \
    static int (*real)(__VA_ARGS__);                                                                                           \
    if (!real) real = (int (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static volatile int64_t *said;
static dev_t disk;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("DIAGNOSE_FAULTS");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *found = mmap(0, 24, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED) said = found;
    struct stat of;
    const char *folder = getenv("DIAGNOSE_FAULTS_DISK");
    if (folder && !stat(folder, &of)) disk = of.st_dev;
}

static void slowly(void) {
    if (said && said[0]) usleep((useconds_t)(said[0] * 1000));
}

static int refused(dev_t of) {
    if (!said || !said[2] || !disk || of != disk) return 0;
    errno = EROFS;
    return 1;
}

/* Standard output and error stay: the log may be on this disk. */
static int closed(int file) {
    struct stat of;
    return file > 2 && said && said[2] && !fstat(file, &of) && S_ISREG(of.st_mode) && refused(of.st_dev);
}

/* A name on the disk; one that is not there yet is of the folder before it. */
static int closed_at(int folder, const char *path) {
    struct stat of;
    char before[4096];
    if (!said || !said[2]) return 0;
    if (!fstatat(folder, path, &of, 0)) return refused(of.st_dev);
    snprintf(before, sizeof before, "%s", path);
    char *end = before;
    for (char *at = before; *at; at++)
        if (*at == '/') end = at;
    if (end == before) snprintf(before, sizeof before, ".");
    else *end = 0;
    return !fstatat(folder, before, &of, 0) && refused(of.st_dev);
}

static int opened(const char *name, int folder, const char *path, int flags, mode_t mode) {
    REAL(name, int, const char *, int, mode_t);
    if ((flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) && closed_at(folder, path)) return -1;
    return real(folder, path, flags, mode);
}

#define OPENED(folder)                                                                                                         \
    mode_t mode = 0;                                                                                                           \
    va_list rest;                                                                                                              \
    va_start(rest, flags);                                                                                                     \
    if (flags & (O_CREAT | O_TMPFILE)) mode = va_arg(rest, mode_t);                                                            \
    va_end(rest);                                                                                                              \
    return opened("openat", folder, path, flags, mode)

int open(const char *path, int flags, ...) { OPENED(AT_FDCWD); }
int open64(const char *path, int flags, ...) { OPENED(AT_FDCWD); }
int openat(int folder, const char *path, int flags, ...) { OPENED(folder); }
int openat64(int folder, const char *path, int flags, ...) { OPENED(folder); }

int unlink(const char *path) {
    REAL("unlink", const char *);
    return closed_at(AT_FDCWD, path) ? -1 : real(path);
}

int unlinkat(int folder, const char *path, int flags) {
    REAL("unlinkat", int, const char *, int);
    return closed_at(folder, path) ? -1 : real(folder, path, flags);
}

int rename(const char *from, const char *to) {
    REAL("rename", const char *, const char *);
    return closed_at(AT_FDCWD, from) ? -1 : real(from, to);
}

int mkdir(const char *path, mode_t mode) {
    REAL("mkdir", const char *, mode_t);
    return closed_at(AT_FDCWD, path) ? -1 : real(path, mode);
}

int truncate(const char *path, off_t size) {
    REAL("truncate", const char *, off_t);
    return closed_at(AT_FDCWD, path) ? -1 : real(path, size);
}

int ftruncate(int file, off_t size) {
    REAL("ftruncate", int, off_t);
    return closed(file) ? -1 : real(file, size);
}

int posix_fallocate(int file, off_t from, off_t size) {
    REAL("posix_fallocate", int, off_t, off_t);
    return closed(file) ? EROFS : real(file, from, size);
}

#define WRITES(name, types, words)                                                                                             \
    ssize_t name types {                                                                                                       \
        static ssize_t(*real) types;                                                                                           \
        if (!real) real = (ssize_t(*) types)dlsym(RTLD_NEXT, #name);                                                           \
        return closed(file) ? -1 : real words;                                                                                 \
    }

WRITES(write, (int file, const void *data, size_t size), (file, data, size))
WRITES(pwrite, (int file, const void *data, size_t size, off_t at), (file, data, size, at))
WRITES(writev, (int file, const struct iovec *data, int count), (file, data, count))

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) { return pwrite(file, data, size, at); }
int ftruncate64(int file, off64_t size) { return ftruncate(file, size); }
int truncate64(const char *path, off64_t size) { return truncate(path, size); }
int posix_fallocate64(int file, off64_t from, off64_t size) { return posix_fallocate(file, from, size); }

static int synced(const char *name, int file) {
    static int (*real[2])(int);
    int (**mine)(int) = &real[name[1] == 'd'];
    if (!*mine) *mine = (int (*)(int))dlsym(RTLD_NEXT, name);
    slowly();
    return closed(file) ? -1 : (*mine)(file);
}

int fsync(int file) { return synced("fsync", file); }
int fdatasync(int file) { return synced("fdatasync", file); }

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, at);
    if (!status && said && clock == CLOCK_REALTIME) at->tv_sec += said[1];
    return status;
}

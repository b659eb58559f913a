/* Loaded into a service (LD_PRELOAD) so that its disk is slow and its clock jumps: two things that cannot be had otherwise
 * without root. A file that both sides map says how: milliseconds that each sync takes longer, seconds that the time of day is
 * ahead. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *said;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("DIAGNOSE_FAULTS");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *found = mmap(0, 16, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED) said = found;
}

static void slowly(void) {
    if (said && said[0]) usleep((useconds_t)(said[0] * 1000));
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    slowly();
    return real(file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    slowly();
    return real(file);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, at);
    if (!status && said && clock == CLOCK_REALTIME) at->tv_sec += said[1];
    return status;
}

/* Preloaded into a process, its time of day is off and its disk is slow by what a file says: seconds
   and microseconds, eight bytes each, mapped, so that both can be set while the process runs. Other
   clocks stay as they are. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile struct { int64_t offset_s, write_us; } *told;

__attribute__((constructor)) static void map_file(void)
{
    const char *path = getenv("HYDRA_PRELOADED_FILE");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *told, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        abort();
    told = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int) syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && told != NULL)
        now->tv_sec += told->offset_s;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void) zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (result != NULL)
        *result = exact.tv_sec;
    return exact.tv_sec;
}

static int written(long number, int file)
{
    if (told != NULL && told->write_us > 0)
        usleep((useconds_t) told->write_us);
    return (int) syscall(number, file);
}

int fsync(int file)
{
    return written(SYS_fsync, file);
}

int fdatasync(int file)
{
    return written(SYS_fdatasync, file);
}

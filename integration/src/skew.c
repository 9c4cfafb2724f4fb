/* The wall clock of the program that loads this is wrong by HEADROOM_TEST_SKEW seconds. Its monotonic clocks are not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(id, now);
    const char *skew = getenv("HEADROOM_TEST_SKEW");
    if (answer == 0 && skew && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        now->tv_sec += atol(skew);
    return answer;
}

/* Leaves something in memory behind and ends: `leftovers KIND MIB [KEY]`. Each kind is what real programs do. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HUGE_PAGE (2UL << 20)

static size_t bytes;
/* Marks what this run makes: it is part of names, and the upper half of SysV keys. */
static const char *mark = "0";

/* A SysV key that no other object has. */
static key_t next_key(void) {
    static int made;
    return (key_t)(strtoul(mark, NULL, 10) << 16 | ((getpid() * 37 + made++) & 0xffff));
}

/* The kind cannot be had on this host. */
static void skip(const char *why) {
    fprintf(stderr, "skipped: %s: %s\n", why, strerror(errno));
    exit(77);
}

static void need(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

static char *name(const char *kind) {
    static char text[200];
    snprintf(text, sizeof text, "/headroom-left-%s-%s-%d", kind, mark, getpid());
    return text;
}

static void fill(int fd) {
    need(ftruncate(fd, bytes) == 0, "ftruncate");
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need(at != MAP_FAILED, "mmap");
    memset(at, 1, bytes);
}

static void write_file(const char *dir, size_t size) {
    char path[300], *room = calloc(1, 1 << 20);
    snprintf(path, sizeof path, "%s%s", dir, name("file"));
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    need(fd >= 0, path);
    for (size_t n = 0; n < size; n += 1 << 20)
        need(write(fd, room, 1 << 20) == 1 << 20, "write");
}

static void posix_shm(void) {
    int fd = shm_open(name("shm"), O_CREAT | O_RDWR, 0600);
    need(fd >= 0, "shm_open");
    fill(fd);
}

static void sysv_shm(int flags) {
    int id = shmget(next_key(), bytes, IPC_CREAT | 0600 | flags);
    if (id < 0 && flags)
        skip("SHM_HUGETLB");
    need(id >= 0, "shmget");
    char *at = shmat(id, NULL, 0);
    need(at != (void *)-1, "shmat");
    memset(at, 1, bytes);
}

static void huge_pages(void) {
    /* A mapping that is there can be touched only when the pool has pages: SIGBUS otherwise. */
    FILE *file = fopen("/proc/sys/vm/nr_hugepages", "r");
    int pages = 0;
    if (!file || fscanf(file, "%d", &pages) != 1 || (size_t)pages < bytes / HUGE_PAGE) {
        errno = ENOMEM;
        skip("nr_hugepages");
    }
    sysv_shm(SHM_HUGETLB);
}

static void message_queue(void) {
    struct mq_attr attr = {.mq_maxmsg = 10, .mq_msgsize = 8192};
    static char text[8192];
    mqd_t queue = mq_open(name("mq"), O_CREAT | O_RDWR | O_NONBLOCK, 0600, &attr);
    if (queue == (mqd_t)-1 && errno == ENOSYS)
        skip("mq_open");
    need(queue != (mqd_t)-1, "mq_open");
    while (mq_send(queue, text, sizeof text, 0) == 0)
        ;
}

static void sysv_messages(void) {
    struct { long kind; char text[8000]; } message = {1, ""};
    for (int queue = 0; queue < 8; queue++) {
        int id = msgget(next_key(), IPC_CREAT | 0600);
        need(id >= 0, "msgget");
        while (msgsnd(id, &message, sizeof message.text, IPC_NOWAIT) == 0)
            ;
    }
}

static void named_semaphores(void) {
    char text[260];
    for (int n = 0; n < 64; n++) {
        snprintf(text, sizeof text, "%s.%d", name("sem"), n);
        need(sem_open(text, O_CREAT, 0600, 1) != SEM_FAILED, "sem_open");
    }
}

static void sysv_semaphores(void) {
    for (int n = 0; n < 32; n++)
        need(semget(next_key(), 100, IPC_CREAT | 0600) >= 0, "semget");
}

static void memfd(void) {
    int fd = memfd_create("left", 0);
    need(fd >= 0, "memfd_create");
    fill(fd);
    /* Only the descriptor keeps the pages: no mapping of it is left. */
}

static void sockets(void) {
    static char text[64 << 10];
    for (int n = 0; n < 64; n++) {
        int pair[2];
        need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0, "socketpair");
        while (write(pair[0], text, sizeof text) > 0)
            ;
    }
}

/* A daemon by double fork, in a session of its own, that keeps what `leave` made. Its parent waits until it has. */
static void detached(void (*leave)(void)) {
    int ready[2];
    char word;
    need(pipe(ready) == 0, "pipe");
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            for (int fd = 0; fd < 3; fd++)
                close(fd);
            leave();
            need(write(ready[1], "x", 1) == 1, "write");
            for (;;)
                pause();
        }
        _exit(0);
    }
    close(ready[1]);
    need(read(ready[0], &word, 1) == 1, "the daemon");
}

/* Leaves nothing: touches its memory for a moment. */
static void ordinary(void) {
    char *at = malloc(bytes);
    need(at != NULL, "malloc");
    memset(at, 1, bytes);
    usleep(300 * 1000);
    need(at[bytes - 1] == 1, "its memory");
}

/* Touches its memory and computes for about 30 ms of a processor. */
static void work(void) {
    char *at = malloc(bytes);
    need(at != NULL, "malloc");
    memset(at, 1, bytes);
    unsigned sum = 0;
    for (unsigned n = 0; n < 30u << 20; n++)
        sum = sum * 31 + (unsigned char)at[(n * 64) % bytes];
    need(sum != 1, "its sum");
}

/* Forks until it cannot, and goes on for so many seconds: children wait, every few are replaced. */
static void fork_bomb(time_t seconds) {
    time_t end = time(NULL) + seconds;
    while (time(NULL) < end) {
        pid_t child = fork();
        if (child == 0)
            for (;;)
                pause();
        if (child < 0)
            usleep(1000);
    }
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
}

/* Writes lines as fast as it can. */
static void log_flood(time_t seconds) {
    static char line[4096];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    for (time_t end = time(NULL) + seconds; time(NULL) < end;)
        for (int n = 0; n < 1000; n++)
            if (write(1, line, sizeof line) < 0)
                return;
}

/* Writes files to the working directory and has each on the disk. */
static void fill_disk(void) {
    char *room = calloc(1, 1 << 20), path[64];
    for (size_t n = 0; n < bytes >> 20; n++) {
        snprintf(path, sizeof path, "filled-%d-%zu", getpid(), n);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        if (fd < 0 || write(fd, room, 1 << 20) < 0 || fsync(fd) < 0)
            return;
        close(fd);
    }
}

static void grow_without_end(void) {
    for (;;)
        memset(malloc(8 << 20), 1, 8 << 20);
}

int main(int count, char **words) {
    const char *kind = count > 1 ? words[1] : "";
    if (count > 3)
        mark = words[3];
    bytes = (count > 2 ? strtoul(words[2], NULL, 10) : 1) << 20;
    if (!strcmp(kind, "posix-shm"))
        posix_shm();
    else if (!strcmp(kind, "sysv-shm"))
        sysv_shm(0);
    else if (!strcmp(kind, "huge-pages"))
        huge_pages();
    else if (!strcmp(kind, "dev-shm-file"))
        write_file("/dev/shm", bytes);
    else if (!strcmp(kind, "tmp-file"))
        write_file(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", bytes);
    else if (!strcmp(kind, "work"))
        work();
    else if (!strcmp(kind, "fork-bomb"))
        fork_bomb(bytes >> 20);
    else if (!strcmp(kind, "log-flood"))
        log_flood(bytes >> 20);
    else if (!strcmp(kind, "fill-dev-shm"))
        write_file("/dev/shm", bytes);
    else if (!strcmp(kind, "fill-disk"))
        fill_disk();
    else if (!strcmp(kind, "ordinary"))
        ordinary();
    else if (!strcmp(kind, "mq"))
        message_queue();
    else if (!strcmp(kind, "sysv-messages"))
        sysv_messages();
    else if (!strcmp(kind, "named-semaphores"))
        named_semaphores();
    else if (!strcmp(kind, "sysv-semaphores"))
        sysv_semaphores();
    else if (!strcmp(kind, "memfd-detached"))
        detached(memfd);
    else if (!strcmp(kind, "posix-shm-detached"))
        detached(posix_shm);
    else if (!strcmp(kind, "sockets-detached"))
        detached(sockets);
    else if (!strcmp(kind, "killed-with-shm")) {
        posix_shm();
        raise(SIGKILL);
    } else if (!strcmp(kind, "oom-with-shm")) {
        posix_shm();
        grow_without_end();
    } else {
        fprintf(stderr, "unknown kind %s\n", kind);
        return 2;
    }
    return 0;
}

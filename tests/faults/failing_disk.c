/* A library to preload: a disk that answers EIO, or that is full. What fails for files below $FAILING_DISK_ROOT is said
 * by the first byte of $FAILING_DISK, a file that may be written at any time: bit 0 for writes, bit 1 for fsync,
 * fdatasync and syncfs. A failed sync takes place nonetheless, for what a kernel does with the pages of a failed one
 * differs, and a process must not rely on any of it. Bit 2 is a full disk: no space can be allocated, and only segments of
 * the log, which are allocated before they are written, can still be written. Programs that the process starts are not
 * preloaded.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITES = 1, SYNCS = 2, ROOM = 4 };

static const volatile unsigned char *failing;
static char root[PATH_MAX];

static int fails(int fd, int what) {
    char link[64], path[PATH_MAX];
    int set = failing ? *failing : 0;
    if (!(set & what) && !((set & ROOM) && what == WRITES))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0 || strncmp(path, root, strlen(root)))
        return 0;
    path[size] = 0;
    if (!(set & what) && strstr(path + strlen(root), "commitlog/"))
        return 0;
    errno = set & what && what != ROOM ? EIO : ENOSPC;
    return 1;
}

int posix_fallocate64(int fd, off64_t offset, off64_t size) {
    if (fails(fd, ROOM))
        return ENOSPC;
    return syscall(SYS_fallocate, fd, 0, offset, size) ? errno : 0;
}

ssize_t write(int fd, const void *data, size_t size) {
    return fails(fd, WRITES) ? -1 : syscall(SYS_write, fd, data, size);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    return fails(fd, WRITES) ? -1 : syscall(SYS_pwrite64, fd, data, size, offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    return fails(fd, WRITES) ? -1 : syscall(SYS_pwritev, fd, parts, (long)count, offset, 0L);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    return fails(fd, WRITES) ? -1 : syscall(SYS_pwritev2, fd, parts, (long)count, offset, 0L, flags);
}

int fsync(int fd) {
    int result = (int)syscall(SYS_fsync, fd);
    return fails(fd, SYNCS) ? -1 : result;
}

int fdatasync(int fd) {
    int result = (int)syscall(SYS_fdatasync, fd);
    return fails(fd, SYNCS) ? -1 : result;
}

int syncfs(int fd) {
    int result = (int)syscall(SYS_syncfs, fd);
    return fails(fd, SYNCS) ? -1 : result;
}

__attribute__((constructor)) static void map_failing(void) {
    const char *path = getenv("FAILING_DISK"), *folder = getenv("FAILING_DISK_ROOT");
    int fd = path && folder ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = fd < 0 ? MAP_FAILED : mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        perror("FAILING_DISK");
        abort();
    }
    unsetenv("LD_PRELOAD");
    snprintf(root, sizeof root, "%s/", folder);
    failing = mapped;
    close(fd);
}

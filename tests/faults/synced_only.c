/* A library to preload: keeps aside what of a folder a power cut would leave, to the letter of POSIX.
 *
 * What fsync, fdatasync or syncfs was called for goes to $SYNCED_ONLY_KEPT, in files named by inode: the contents of a
 * file, or the names of a folder, one a line ("inode mode name", mode in octal). "root" holds the inode of
 * $SYNCED_ONLY_ROOT; all that is in it when the process starts is durable. Nothing else has to be watched, for what
 * nobody has synced is not there. Contents and names are those at the begin of the call: what comes meanwhile has no
 * promise. No call waits for a real disk. Programs that the process starts are not preloaded.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_INODES (1 << 16)

static char root[4096], kept[4096];
static dev_t device;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static void must(int is_done, const char *what) {
    if (!is_done) {
        perror(what);
        abort();
    }
}

/* Has an inode stay open from its first sight on, so that no other file is ever given its number. */
static void hold(int fd, ino_t inode) {
    static ino_t held[MOST_INODES];
    static int count;
    char name[64];
    size_t at = inode % MOST_INODES;
    while (held[at] && held[at] != inode)
        at = (at + 1) % MOST_INODES;
    if (held[at])
        return;
    held[at] = inode;
    must(++count < MOST_INODES, "too many inodes");
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    must(open(name, O_PATH | O_CLOEXEC) >= 0, name);
}

static void keep_names(int fd, FILE *copy) {
    DIR *folder = fdopendir(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder) /* it is removed by now */
        return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        struct stat stat;
        int seen = openat(dirfd(folder), entry->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        must(seen >= 0 || errno == ENOENT, entry->d_name);
        if (seen >= 0 && strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) {
            must(!fstat(seen, &stat), entry->d_name);
            hold(seen, stat.st_ino);
            fprintf(copy, "%lu %o %s\n", (unsigned long)stat.st_ino, stat.st_mode, entry->d_name);
        }
        close(seen);
    }
    closedir(folder);
}

static void keep_contents(int fd, FILE *copy) {
    static char name[64], piece[1 << 16];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd); /* which may be open for writing only */
    int own = open(name, O_RDONLY | O_CLOEXEC);
    must(own >= 0, name);
    for (ssize_t size; (size = read(own, piece, sizeof piece));) {
        must(size > 0, name);
        fwrite(piece, 1, size, copy);
    }
    close(own);
}

static int keep(int fd) {
    struct stat stat;
    char draft[5000], path[5000];
    if (fstat(fd, &stat))
        return -1;
    if (stat.st_dev != device || !(S_ISREG(stat.st_mode) || S_ISDIR(stat.st_mode)))
        return 0;
    pthread_mutex_lock(&one_at_a_time);
    hold(fd, stat.st_ino);
    snprintf(draft, sizeof draft, "%s/draft", kept);
    snprintf(path, sizeof path, "%s/%lu", kept, (unsigned long)stat.st_ino);
    FILE *copy = fopen(draft, "we");
    must(copy != NULL, draft);
    S_ISDIR(stat.st_mode) ? keep_names(fd, copy) : keep_contents(fd, copy);
    must(!ferror(copy) && !fclose(copy), draft);
    must(!rename(draft, path), path);
    pthread_mutex_unlock(&one_at_a_time);
    return 0;
}

static int keep_path(const char *path, const struct stat *stat, int kind, struct FTW *place) {
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    must(fd >= 0 || errno == ENOENT, path);
    if (fd >= 0) {
        keep(fd);
        close(fd);
    }
    return 0;
}

int fsync(int fd) { return keep(fd); }
int fdatasync(int fd) { return keep(fd); }
int syncfs(int fd) { return nftw(root, keep_path, 16, FTW_PHYS); }

__attribute__((constructor)) static void begin(void) {
    struct stat stat_of_root;
    char path[5000];
    unsetenv("LD_PRELOAD");
    snprintf(root, sizeof root, "%s", getenv("SYNCED_ONLY_ROOT"));
    snprintf(kept, sizeof kept, "%s", getenv("SYNCED_ONLY_KEPT"));
    must(!stat(root, &stat_of_root), root);
    device = stat_of_root.st_dev;
    must(!syncfs(-1), root);
    snprintf(path, sizeof path, "%s/root", kept);
    FILE *file = fopen(path, "we");
    must(file && fprintf(file, "%lu", (unsigned long)stat_of_root.st_ino) > 0 && !fclose(file), path);
}

/* What the benchmark calls raw: Hyperscan from C, and nothing else.
 *
 *   raw PATTERNS FILE [line|chunk]
 *
 * PATTERNS has one pattern a line: id TAB flags TAB pattern (flags: i s m p(refilter), or - for none). FILE is read in chunks of 1 MiB and its
 * bytes are scanned as they are: no prefix, colour or NUL is taken off. With `line` (the default) each line, cut at LF, is one call of
 * hs_scan in block mode with SINGLEMATCH; with `chunk` each 1 MiB is one call, with MULTILINE. The callback only counts.
 * Prints one JSON object; cpu_s is reading, splitting and scanning, without compiling.
 */
#define _GNU_SOURCE
#include <hs/hs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHUNK = 1 << 20, MOST = 8192 };

static int on_match(unsigned id, unsigned long long from, unsigned long long to, unsigned flags, void *context) {
    (void)id, (void)from, (void)to, (void)flags;
    ++*(uint64_t *)context;
    return 0;
}

static void stop(const char *what, const char *why) {
    fprintf(stderr, "raw: %s: %s\n", what, why);
    exit(2);
}

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static hs_database_t *compile(const char *path, int by_line) {
    static char *patterns[MOST];
    static unsigned flags[MOST], ids[MOST];
    unsigned count = 0;
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    FILE *file = fopen(path, "r");
    if (!file) stop(path, "cannot be opened");
    while ((length = getline(&line, &room, file)) > 0 && count < MOST) {
        line[strcspn(line, "\n")] = 0;
        char *letters = strchr(line, '\t');
        char *pattern = letters ? strchr(letters + 1, '\t') : NULL;
        if (!pattern) stop(path, "wants id TAB flags TAB pattern");
        *pattern++ = 0;
        ids[count] = (unsigned)atoi(line);
        flags[count] = by_line ? HS_FLAG_SINGLEMATCH : HS_FLAG_MULTILINE;
        if (strchr(letters, 'i')) flags[count] |= HS_FLAG_CASELESS;
        if (strchr(letters, 's')) flags[count] |= HS_FLAG_DOTALL;
        if (strchr(letters, 'm')) flags[count] |= HS_FLAG_MULTILINE;
        if (strchr(letters, 'p')) flags[count] |= HS_FLAG_PREFILTER;
        patterns[count++] = strdup(pattern);
    }
    fclose(file);
    free(line);
    hs_database_t *database = NULL;
    hs_compile_error_t *error = NULL;
    if (hs_compile_multi((const char *const *)patterns, flags, ids, count, HS_MODE_BLOCK, NULL, &database, &error) != HS_SUCCESS)
        stop(error->expression >= 0 ? patterns[error->expression] : path, error->message);
    return database;
}

int main(int argc, char **argv) {
    if (argc < 3) stop("usage", "raw PATTERNS FILE [line|chunk]");
    int by_line = argc < 4 || strcmp(argv[3], "chunk") != 0;
    double begin = seconds(CLOCK_PROCESS_CPUTIME_ID);
    hs_database_t *database = compile(argv[1], by_line);
    hs_scratch_t *scratch = NULL;
    if (hs_alloc_scratch(database, &scratch) != HS_SUCCESS) stop("scratch", "no memory");
    double compiled = seconds(CLOCK_PROCESS_CPUTIME_ID);
    double clock = seconds(CLOCK_MONOTONIC);
    FILE *file = fopen(argv[2], "rb");
    if (!file) stop(argv[2], "cannot be opened");
    setvbuf(file, NULL, _IONBF, 0);

    size_t room = 2 * CHUNK, held = 0, got;
    char *buffer = malloc(room);
    uint64_t bytes = 0, lines = 0, matched = 0, matches = 0;
    do {
        if (held + CHUNK > room && !(buffer = realloc(buffer, room *= 2))) stop(argv[2], "a line is too long");
        got = fread(buffer + held, 1, CHUNK, file);
        bytes += got;
        held += got;
        if (!got && held && buffer[held - 1] != '\n') buffer[held++] = '\n'; /* a last line without its newline */
        size_t start = 0;
        if (by_line) {
            char *end;
            while ((end = memchr(buffer + start, '\n', held - start))) {
                uint64_t before = matches;
                size_t length = (size_t)(end - buffer) - start;
                if (hs_scan(database, buffer + start, (unsigned)length, 0, scratch, on_match, &matches) != HS_SUCCESS)
                    stop("hs_scan", "failed");
                ++lines;
                matched += matches != before;
                start += length + 1;
            }
        } else {
            char *last = held ? memrchr(buffer, '\n', held) : NULL;
            if (last) {
                size_t length = (size_t)(last - buffer) + 1;
                if (hs_scan(database, buffer, (unsigned)length, 0, scratch, on_match, &matches) != HS_SUCCESS)
                    stop("hs_scan", "failed");
                start = length;
            }
        }
        memmove(buffer, buffer + start, held - start);
        held -= start;
    } while (got);
    double done = seconds(CLOCK_PROCESS_CPUTIME_ID);
    printf("{\"libhs\": \"%s\", \"bytes\": %llu, \"lines\": %llu, \"matched\": %llu, \"matches\": %llu, \"compile_s\": %.6f, \"cpu_s\": %.6f, \"wall_s\": %.6f}\n",
           hs_version(), (unsigned long long)bytes, (unsigned long long)lines, (unsigned long long)matched,
           (unsigned long long)matches, compiled - begin, done - compiled, seconds(CLOCK_MONOTONIC) - clock);
    return 0;
}

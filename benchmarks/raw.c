/* What the benchmark calls raw: Hyperscan from C, and nothing else.
 *
 *   raw PATTERNS FILE [line|chunk] [PASSES]
 *
 * PATTERNS has one pattern a line: id TAB flags TAB pattern (flags: i s m p(refilter), or - for none). FILE is read in chunks of 1 MiB and its
 * bytes are scanned as they are: no prefix, colour or NUL is taken off. With `line` (the default) each line, cut at LF, is one call of
 * hs_scan in block mode with SINGLEMATCH; with `chunk` each 1 MiB is one call, with MULTILINE. The callback only counts.
 * FILE is read PASSES times, each time with a database that was loaded anew, as the product does it. Prints one JSON object with the
 * sums; cpu_s is reading, splitting and scanning, without compiling or loading.
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

static void compile(const char *path, int by_line, char **bytes, size_t *size) {
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
    if (hs_serialize_database(database, bytes, size) != HS_SUCCESS) stop(path, "cannot be serialised");
    hs_free_database(database);
}

/* The database of `path`, from the file beside it or made and put there: compiling takes ten times as long as most logs. */
static void load(const char *path, int by_line, char **bytes, size_t *size) {
    char name[4096];
    snprintf(name, sizeof name, "%s.%s.db", path, by_line ? "line" : "chunk");
    FILE *file = fopen(name, "rb");
    if (file) {
        fseek(file, 0, SEEK_END);
        *size = (size_t)ftell(file);
        rewind(file);
        *bytes = malloc(*size);
        if (fread(*bytes, 1, *size, file) != *size) stop(name, "cannot be read");
    } else {
        compile(path, by_line, bytes, size);
        if (!(file = fopen(name, "wb")) || fwrite(*bytes, 1, *size, file) != *size) stop(name, "cannot be written");
    }
    fclose(file);
}

struct sums { uint64_t bytes, lines, matched, matches; double cpu_s, wall_s; };


static void pass(const char *serialised, size_t size, const char *path, int by_line, struct sums *sums) {
    hs_database_t *database = NULL;
    hs_scratch_t *scratch = NULL;
    if (hs_deserialize_database(serialised, size, &database) != HS_SUCCESS) stop("database", "cannot be loaded");
    if (hs_alloc_scratch(database, &scratch) != HS_SUCCESS) stop("scratch", "no memory");
    double begin = seconds(CLOCK_PROCESS_CPUTIME_ID), clock = seconds(CLOCK_MONOTONIC);
    FILE *file = fopen(path, "rb");
    if (!file) stop(path, "cannot be opened");
    setvbuf(file, NULL, _IONBF, 0);

    size_t room = 2 * CHUNK, held = 0, got;
    char *buffer = malloc(room);
    do {
        if (held + CHUNK > room && !(buffer = realloc(buffer, room *= 2))) stop(path, "a line is too long");
        got = fread(buffer + held, 1, CHUNK, file);
        sums->bytes += got;
        held += got;
        if (!got && held && buffer[held - 1] != '\n') buffer[held++] = '\n'; /* a last line without its newline */
        size_t start = 0;
        if (by_line) {
            char *end;
            while ((end = memchr(buffer + start, '\n', held - start))) {
                uint64_t before = sums->matches;
                size_t length = (size_t)(end - buffer) - start;
                if (hs_scan(database, buffer + start, (unsigned)length, 0, scratch, on_match, &sums->matches) != HS_SUCCESS)
                    stop("hs_scan", "failed");
                ++sums->lines;
                sums->matched += sums->matches != before;
                start += length + 1;
            }
        } else {
            char *last = held ? memrchr(buffer, '\n', held) : NULL;
            if (last) {
                size_t length = (size_t)(last - buffer) + 1;
                if (hs_scan(database, buffer, (unsigned)length, 0, scratch, on_match, &sums->matches) != HS_SUCCESS)
                    stop("hs_scan", "failed");
                start = length;
            }
        }
        memmove(buffer, buffer + start, held - start);
        held -= start;
    } while (got);
    sums->cpu_s += seconds(CLOCK_PROCESS_CPUTIME_ID) - begin;
    sums->wall_s += seconds(CLOCK_MONOTONIC) - clock;
    fclose(file);
    free(buffer);
    hs_free_scratch(scratch);
    hs_free_database(database);
}

int main(int argc, char **argv) {
    if (argc < 3) stop("usage", "raw PATTERNS FILE [line|chunk] [PASSES]");
    int by_line = argc < 4 || strcmp(argv[3], "chunk") != 0;
    double begin = seconds(CLOCK_PROCESS_CPUTIME_ID);
    char *serialised = NULL;
    size_t size = 0;
    load(argv[1], by_line, &serialised, &size);
    double compiled = seconds(CLOCK_PROCESS_CPUTIME_ID);
    struct sums sums = {0};
    for (int left = argc < 5 ? 1 : atoi(argv[4]); left > 0; left--) pass(serialised, size, argv[2], by_line, &sums);
    printf("{\"libhs\": \"%s\", \"bytes\": %llu, \"lines\": %llu, \"matched\": %llu, \"matches\": %llu, \"compile_s\": %.6f, \"cpu_s\": %.6f, \"wall_s\": %.6f}\n",
           hs_version(), (unsigned long long)sums.bytes, (unsigned long long)sums.lines, (unsigned long long)sums.matched,
           (unsigned long long)sums.matches, compiled - begin, sums.cpu_s, sums.wall_s);
    return 0;
}

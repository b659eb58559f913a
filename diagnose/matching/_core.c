/* The native twin of diagnose/matching/matcher.py's scanning: bytes in; kept lines, counts and numbers out.
 *
 * One call scans one block of whole segments (a segment ends at LF, CR or NUL; only LF ends a line):
 *   split     find segments, cut escape sequences and prefixes off, hash the body's shape, look its verdict up
 *   judge     ask Hyperscan (libhs, when one could be opened; otherwise Python) about shapes not seen before
 *   emit      count, copy kept segments out, read the numbers of metric lines
 * Everything runs without the GIL except the calls back into Python, which are one per new shape at most (and one per
 * line for the few rules that only Python can decide).
 *
 * Twins that tests hold to their Python definitions: clean (lines.py), body_start (prefixes.py), shape (shapes.py),
 * number and readings (metrics.py), sketch (fingerprint.py), normal (evidence.py), and the scan as a whole (matcher.py). A shape that is found is
 * compared byte by byte: two shapes with one hash never share a verdict.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

#define LONGEST 65536u       /* bytes of a segment that are judged and kept; lines.py has the same number */
#define LONGEST_SHAPE 8192u  /* longer bodies are judged each time and not remembered */
#define MOST_ENTRIES 200000u /* remembered shapes; when there are more, those that came once only are forgotten */
#define MOST_ARENA (24u << 20)
#define MOST_FIELDS (1u << 18)
#define UNKNOWN (-1)
#define BATCH 16u /* shapes that are looked up together, so that memory answers for all of them at once */

/* ---------------------------------------------------------------------------------------------------- libhs, if present */

typedef struct { char *message; int expression; } hs_compile_error;
typedef int (*hs_callback)(unsigned id, unsigned long long from, unsigned long long to, unsigned flags, void *context);
static struct {
    void *library;
    const char *(*version)(void);
    int (*compile)(const char *const *, const unsigned *, const unsigned *, unsigned, unsigned, const void *, void **,
                   hs_compile_error **);
    int (*free_error)(hs_compile_error *);
    int (*serialize)(const void *, char **, size_t *);
    int (*deserialize)(const char *, size_t, void **);
    int (*free_database)(void *);
    int (*alloc_scratch)(const void *, void **);
    int (*free_scratch)(void *);
    int (*scan)(const void *, const char *, unsigned, unsigned, void *, hs_callback, void *);
} hs;

static PyObject *open_libhs(PyObject *self, PyObject *args) {
    const char *name;
    if (!PyArg_ParseTuple(args, "s", &name)) return NULL;
    if (!hs.library) {
        void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (!library) Py_RETURN_NONE;
        struct { const char *name; void **slot; } symbols[] = {
            {"hs_version", (void **)&hs.version}, {"hs_compile_multi", (void **)&hs.compile},
            {"hs_free_compile_error", (void **)&hs.free_error}, {"hs_serialize_database", (void **)&hs.serialize},
            {"hs_deserialize_database", (void **)&hs.deserialize}, {"hs_free_database", (void **)&hs.free_database},
            {"hs_alloc_scratch", (void **)&hs.alloc_scratch}, {"hs_free_scratch", (void **)&hs.free_scratch},
            {"hs_scan", (void **)&hs.scan},
        };
        for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
            if (!(*symbols[i].slot = dlsym(library, symbols[i].name))) { dlclose(library); Py_RETURN_NONE; }
        hs.library = library;
    }
    return PyUnicode_FromString(hs.version());
}

/* For any processor that libhs runs on: what is compiled here may be scanned with elsewhere. Such a database of many patterns
   differs from one for the newest processor in its header only; libhs chooses its instructions when it scans. */
static const struct { unsigned tune; unsigned long long features, reserved[2]; } any_processor;

/* compile([(pattern, flags, id), ...]) -> serialised database */
static PyObject *compile_database(PyObject *self, PyObject *rules) {
    if (!hs.library) { PyErr_SetString(PyExc_RuntimeError, "libhs is not open"); return NULL; }
    Py_ssize_t n = PyList_Size(rules);
    if (n < 0) return NULL;
    const char **patterns = calloc((size_t)n + 1, sizeof *patterns);
    unsigned *flags = calloc((size_t)n + 1, sizeof *flags), *ids = calloc((size_t)n + 1, sizeof *ids);
    PyObject *result = NULL;
    if (!patterns || !flags || !ids) { PyErr_NoMemory(); goto done; }
    for (Py_ssize_t i = 0; i < n; i++)
        if (!PyArg_ParseTuple(PyList_GetItem(rules, i), "yII", &patterns[i], &flags[i], &ids[i])) goto done;
    void *database = NULL;
    hs_compile_error *error = NULL;
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = hs.compile(patterns, flags, ids, (unsigned)n, 1, &any_processor, &database, &error);
    Py_END_ALLOW_THREADS
    if (status) {
        PyErr_Format(PyExc_ValueError, "%s (pattern %d)", error ? error->message : "does not compile",
                     error ? error->expression : -1);
        if (error) hs.free_error(error);
        goto done;
    }
    char *bytes = NULL;
    size_t length = 0;
    status = hs.serialize(database, &bytes, &length);
    hs.free_database(database);
    if (status) { PyErr_SetString(PyExc_ValueError, "the database cannot be serialised"); goto done; }
    result = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)length);
    free(bytes);
done:
    free(patterns); free(flags); free(ids);
    return result;
}

/* ----------------------------------------------------------------------------------------------- the twins, one at a time */

static inline int digit(u8 c) { return (u8)(c - '0') < 10; }
static inline int letter(u8 c) { return (u8)((c | 32) - 'a') < 26; }
static inline int blank(u8 c) { return c == ' ' || c == '\t'; }
static inline int space(u8 c) { return c == ' ' || (c >= 9 && c <= 13); }
static u8 in_hosts[256]; /* what names of hosts and services are made of: letters, digits, _ . - */

/* Escape sequences out; returns the new length. See lines.ESCAPES. */
static size_t clean(const u8 *s, size_t n, u8 *out) {
    size_t o = 0;
    for (size_t i = 0; i < n;) {
        if (s[i] != 0x1b) { out[o++] = s[i++]; continue; }
        size_t j = i + 1;
        if (j < n && s[j] == '[') {
            size_t k = j + 1;
            while (k < n && s[k] >= 0x30 && s[k] <= 0x3f) k++;
            while (k < n && s[k] >= 0x20 && s[k] <= 0x2f) k++;
            if (k < n && s[k] >= 0x40 && s[k] <= 0x7e) { i = k + 1; continue; }
        } else if (j < n && s[j] == ']') {
            size_t k = j + 1;
            while (k < n && s[k] != 7 && s[k] != 0x1b) k++;
            if (k < n && s[k] == 7) { i = k + 1; continue; }
            if (k + 1 < n && s[k + 1] == '\\') { i = k + 2; continue; }
        }
        i = j < n && s[j] >= 0x20 && s[j] <= 0x7e ? j + 1 : j;
    }
    return o;
}

static size_t skip_digits(const u8 *s, size_t n, size_t i) {
    while (i < n && digit(s[i])) i++;
    return i;
}

static int starts(const u8 *s, size_t n, size_t i, const char *word) {
    size_t length = strlen(word);
    return i + length <= n && memcmp(s + i, word, length) == 0;
}

static size_t bracket_prefix(const u8 *s, size_t n) { /* [rank3]:  [default3]:  [1,3]<stdout>:  [pod/...] */
    size_t i = starts(s, n, 1, "rank") ? 5 : starts(s, n, 1, "default") ? 8 : 0;
    if (i) {
        size_t j = skip_digits(s, n, i);
        if (j > i && starts(s, n, j, "]:")) { j += 2; return j < n && blank(s[j]) ? j + 1 : j; }
        return 0;
    }
    if (starts(s, n, 1, "pod/")) {
        size_t j = 5;
        while (j < n && s[j] != ']' && !space(s[j])) j++;
        return j > 5 && starts(s, n, j, "] ") ? j + 2 : 0;
    }
    size_t j = skip_digits(s, n, 1);
    if (j == 1 || j >= n || s[j] != ',') return 0;
    size_t k = skip_digits(s, n, j + 1);
    if (k == j + 1) return 0;
    if (starts(s, n, k, "]<stdout>:") || starts(s, n, k, "]<stderr>:")) {
        k += 10;
        return k < n && blank(s[k]) ? k + 1 : k;
    }
    return 0;
}

static size_t ray_prefix(const u8 *s, size_t n) { /* (Name pid=1, ip=10.0.0.1)   (raylet) */
    size_t i = 1;
    while (i < n && !space(s[i]) && s[i] != '(' && s[i] != ')') i++;
    size_t at = i > 1 && i < n && s[i] == ' ' && starts(s, n, i + 1, "pid=") ? i + 1 : 1;
    if (starts(s, n, at, "pid=")) {
        size_t j = skip_digits(s, n, at + 4);
        if (starts(s, n, j, ", ip=")) {
            size_t k = j + 5;
            while (k < n && (digit(s[k]) || letter(s[k]) || s[k] == '.' || s[k] == ':' || s[k] == '-')) k++;
            if (k > j + 5) j = k;
        }
        if (starts(s, n, j, ") ")) return j + 2;
    }
    size_t j = starts(s, n, 1, "raylet") ? 7 : starts(s, n, 1, "autoscaler") ? 11 : 0;
    if (!j) return 0;
    while (j < n && s[j] != '(' && s[j] != ')') j++;
    return starts(s, n, j, ") ") ? j + 2 : 0;
}

/* 2026-01-02 03:04: the usual first part of a time, in one look; returns the bytes behind which its seconds stand */
static size_t usual_minute(const u8 *s, size_t n) {
#if defined(__SSE2__)
    if (n < 17 || s[16] != ':') return 0;
    __m128i from_zero = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)s), _mm_set1_epi8('0'));
    unsigned digits = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(from_zero, _mm_set1_epi8(9)), from_zero));
    return digits == 0xdb6f && s[4] == '-' && s[7] == '-' && (s[10] == ' ' || s[10] == 'T') && s[13] == ':' ? 17 : 0;
#else
    (void)s, (void)n;
    return 0;
#endif
}

static size_t time_prefix(const u8 *s, size_t n) { /* 2026-01-02 03:04:05,678   [2026-01-02T03:04:05.678Z] */
    size_t i = s[0] == '[', minute = usual_minute(s + i, n - i);
    int open = (int)i;
    static const char *between[] = {"-/", "-/", "T ", "::", "::"};
    i += minute;
    for (int part = minute ? 5 : 0; part < 6; part++) {
        size_t j = skip_digits(s, n, i);
        if (j == i) return 0;
        i = j;
        if (part == 5) break;
        if (i >= n || (s[i] != between[part][0] && s[i] != between[part][1])) return 0;
        i++;
    }
    if (i < n && (s[i] == '.' || s[i] == ',')) {
        size_t j = skip_digits(s, n, i + 1);
        if (j == i + 1) return 0;
        i = j;
    }
    if (i < n && s[i] == 'Z') i++;
    else if (i < n && (s[i] == '+' || s[i] == '-')) {
        size_t j = skip_digits(s, n, i + 1);
        if (j == i + 1) return 0;
        i = j;
        if (i < n && s[i] == ':') {
            j = skip_digits(s, n, i + 1);
            if (j == i + 1) return 0;
            i = j;
        }
    }
    if (open) {
        if (i >= n || s[i] != ']') return 0;
        i++;
    } else if (i < n && !blank(s[i])) return 0;
    while (i < n && blank(s[i])) i++;
    return i;
}

static int is_host(const u8 *s, size_t n) {
    static const char *stems[] = {"node", "gpu", "worker", "host", "server", "compute", "dgx", "hgx", "nid", "cn", "gn"};
    static const char *files[] = {"safetensors", "bin", "pt", "pth", "json", "jsonl", "parquet", "arrow", "txt", "py", "gz", "tar",
                                  "log", "model"};
    size_t runs = 0, dash = 0, dotted = 0;
    for (size_t i = 0; i < n; i++) {
        runs += digit(s[i]) && !(i && digit(s[i - 1]));
        dash += s[i] == '-';
        dotted += s[i] == '.' && i + 1 < n && letter(s[i + 1]);
    }
    if (!runs || s[n - 1] == '.' || s[n - 1] == '-') return 0;
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        size_t length = strlen(files[k]);
        if (n > length && s[n - length - 1] == '.' && memcmp(s + n - length, files[k], length) == 0) return 0;
    }
    size_t tail = n; /* an exception is no host: cv2.error, oss2.exceptions.NoSuchKey */
    while (tail && letter(s[tail - 1])) tail--;
    if (tail && s[tail - 1] == '.' && tail < n) {
        if (n - tail == 5 && memcmp(s + tail, "error", 5) == 0) return 0;
        size_t small = tail + 1;
        while (small < n && s[small] < 'a') small++;
        if (s[tail] < 'a' && small < n) return 0;
    }
    if (dash || runs >= 3 || dotted) return 1;
    for (size_t k = 0; k < sizeof stems / sizeof *stems; k++) {
        size_t length = strlen(stems[k]);
        if (starts(s, n, 0, stems[k]) && length < n && digit(s[length])) return 1;
    }
    return 0;
}

static size_t word_prefix(const u8 *s, size_t n) { /* worker-1  |    gpu-017: */
    size_t i = 0;
    while (i < n && in_hosts[s[i]]) i++;
    if (i >= n) return 0;
    if (s[i] == ' ') {
        size_t d = i;
        while (d > 0 && digit(s[d - 1])) d--;
        if (d == i || d < 2 || (s[d - 1] != '-' && s[d - 1] != '_') || (!digit(s[0]) && !letter(s[0]))) return 0;
        size_t j = i;
        while (j < n && j < i + 41 && s[j] == ' ') j++;
        if (j > i + 40 || j >= n || s[j] != '|') return 0;
        return j + 1 < n && s[j + 1] == ' ' ? j + 2 : j + 1;
    }
    if (s[i] != ':' || i + 1 >= n || s[i + 1] != ' ' || s[0] < 'a' || s[0] > 'z' || memchr(s, '_', i)) return 0;
    return is_host(s, i) ? i + 2 : 0;
}

static size_t one_prefix(const u8 *s, size_t n) {
    u8 c = s[0];
    size_t found;
    if (c == '[') return (found = bracket_prefix(s, n)) ? found : time_prefix(s, n);
    if (c == '(') return ray_prefix(s, n);
    if (c == ' ' || digit(c)) {
        size_t i = 0;
        while (i < n && i < 5 && s[i] == ' ') i++;
        size_t j = skip_digits(s, n, i);
        if (j > i && starts(s, n, j, ": ")) return j + 2;
        if (c == ' ') return 0;
        return (found = time_prefix(s, n)) ? found : word_prefix(s, n);
    }
    if (!letter(c)) return 0;
    if (c == 's' && (starts(s, n, 0, "stdout ") || starts(s, n, 0, "stderr ")) && n > 8 && (s[7] == 'F' || s[7] == 'P')
        && s[8] == ' ')
        return 9;
    return word_prefix(s, n);
}

static size_t body_start(const u8 *s, size_t n) {
    size_t at = 0;
    for (int k = 0; k < 4 && at < n; k++) {
        size_t found = one_prefix(s + at, n - at);
        if (!found) break;
        at += found;
    }
    return at;
}

/* The shape of n bytes. It can be read up to `end`, which may lie behind them. */
static size_t shape_scalar(const u8 *s, size_t n, const u8 *end, u8 *out) {
    size_t o = 0;
    (void)end;
    int before = 0;
    for (size_t i = 0; i < n; i++) {
        int class = digit(s[i]) ? 1 : s[i] >= 0x80 ? 2 : 0;
        if (!class) out[o++] = s[i];
        else if (class != before) out[o++] = class == 1 ? '0' : 0x80;
        before = class;
    }
    return o;
}

#if defined(__SSE2__)
static u8 pack_table[256][8];

__attribute__((target("ssse3,popcnt"))) static size_t shape_ssse3(const u8 *s, size_t n, const u8 *end, u8 *out) {
    const __m128i zero = _mm_set1_epi8('0'), nine = _mm_set1_epi8(9), top = _mm_set1_epi8((char)0x80);
    u8 *o = out;
    unsigned digits_before = 0, highs_before = 0;
    for (size_t i = 0; i < n; i += 16) {
        u8 tail[16];
        const u8 *p = s + i;
        unsigned valid = 0xffff;
        if (n - i < 16) {
            if (end - p < 16) {
                memset(tail, ' ', sizeof tail);
                memcpy(tail, p, n - i);
                p = tail;
            }
            valid = (1u << (n - i)) - 1;
        }
        __m128i v = _mm_loadu_si128((const __m128i *)p);
        __m128i from_zero = _mm_sub_epi8(v, zero);
        __m128i is_digit = _mm_cmpeq_epi8(_mm_min_epu8(from_zero, nine), from_zero);
        __m128i is_high = _mm_cmplt_epi8(v, _mm_setzero_si128());
        unsigned d = (unsigned)_mm_movemask_epi8(is_digit), h = (unsigned)_mm_movemask_epi8(is_high);
        unsigned masked = (d | h) & valid;
        if (!masked) {
            _mm_storeu_si128((__m128i *)o, v);
            o += n - i < 16 ? n - i : 16;
            digits_before = highs_before = 0;
            continue;
        }
        unsigned keep = (~masked | (d & ~(d << 1 | digits_before)) | (h & ~(h << 1 | highs_before))) & valid;
        digits_before = d >> 15 & 1;
        highs_before = h >> 15 & 1;
        v = _mm_or_si128(_mm_andnot_si128(is_digit, v), _mm_and_si128(is_digit, zero));
        v = _mm_or_si128(_mm_andnot_si128(is_high, v), _mm_and_si128(is_high, top));
        _mm_storel_epi64((__m128i *)o, _mm_shuffle_epi8(v, _mm_loadl_epi64((const __m128i *)pack_table[keep & 255])));
        o += __builtin_popcount(keep & 255);
        v = _mm_srli_si128(v, 8);
        _mm_storel_epi64((__m128i *)o, _mm_shuffle_epi8(v, _mm_loadl_epi64((const __m128i *)pack_table[keep >> 8])));
        o += __builtin_popcount(keep >> 8);
    }
    return (size_t)(o - out);
}

/* The same, 64 bytes at a time */
__attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt"))) static size_t shape_vbmi2(const u8 *s, size_t n, const u8 *end, u8 *out) {
    const __m512i zero = _mm512_set1_epi8('0'), ten = _mm512_set1_epi8(10), top = _mm512_set1_epi8((char)0x80);
    u8 *o = out;
    u64 digits_before = 0, highs_before = 0;
    (void)end;
    for (size_t i = 0; i < n; i += 64) {
        u64 valid = n - i < 64 ? (1ull << (n - i)) - 1 : ~0ull;
        __m512i v = _mm512_maskz_loadu_epi8(valid, s + i);
        u64 d = _mm512_mask_cmplt_epu8_mask(valid, _mm512_sub_epi8(v, zero), ten), h = _mm512_movepi8_mask(v);
        u64 drop = (d & (d << 1 | digits_before)) | (h & (h << 1 | highs_before));
        digits_before = d >> 63;
        highs_before = h >> 63;
        v = _mm512_mask_mov_epi8(_mm512_mask_mov_epi8(v, d, zero), h, top);
        u64 keep = valid & ~drop;
        _mm512_storeu_si512(o, _mm512_maskz_compress_epi8(keep, v));
        o += __builtin_popcountll(keep);
    }
    return (size_t)(o - out);
}
#endif

/* out needs SHAPE_ROOM bytes more than n: the fast versions store whole words */
#define SHAPE_ROOM 64u
typedef size_t (*Shaping)(const u8 *, size_t, const u8 *, u8 *);
static Shaping shapings[3] = {shape_scalar}, shape = shape_scalar; /* all that this processor can do; the fastest of them */

static void set_up_shapes(void) {
#if defined(__SSE2__)
    for (int mask = 0; mask < 256; mask++) {
        int o = 0;
        for (int bit = 0; bit < 8; bit++) if (mask >> bit & 1) pack_table[mask][o++] = (u8)bit;
        while (o < 8) pack_table[mask][o++] = 0x80;
    }
    int ways = 1;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("ssse3") && __builtin_cpu_supports("popcnt")) shapings[ways++] = shape_ssse3;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")
        && __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("popcnt"))
        shapings[ways++] = shape_vbmi2;
    shape = shapings[ways - 1];
#endif
}

/* The number at s as Python's float() reads it; see metrics.NUMBER. Returns the bytes it takes, 0 if there is none. */
static size_t number(const u8 *s, size_t n, double *value) {
    static const double ten[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
                                 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    size_t i = 0;
    int negative = n && s[0] == '-';
    if (n && (s[0] == '-' || s[0] == '+')) i++;
    u64 mantissa = 0;
    int digits = 0, exponent = 0;
    size_t whole = i;
    for (; i < n && digit(s[i]); i++)
        if (digits < 19) { mantissa = mantissa * 10 + (u64)(s[i] - '0'); digits += mantissa != 0; } else { digits++; exponent++; }
    int any = i > whole;
    if (i < n && s[i] == '.' && (any || (i + 1 < n && digit(s[i + 1])))) {
        i++;
        for (; i < n && digit(s[i]); i++) {
            any = 1;
            if (digits < 19) { mantissa = mantissa * 10 + (u64)(s[i] - '0'); digits += mantissa != 0; exponent--; } else digits++;
        }
    }
    if (!any) return 0;
    if (i < n && (s[i] | 32) == 'e') {
        size_t j = i + 1;
        int down = j < n && s[j] == '-';
        if (j < n && (s[j] == '-' || s[j] == '+')) j++;
        if (j < n && digit(s[j])) {
            int power = 0;
            for (; j < n && digit(s[j]); j++) if (power < 100000) power = power * 10 + (s[j] - '0');
            exponent += down ? -power : power;
            i = j;
        }
    }
    if (digits <= 19 && mantissa < (1ull << 53) && exponent >= -22 && exponent <= 22) {
        /* exact operands, one rounding: the same double as the correctly rounded one */
        double m = (double)mantissa;
        m = exponent < 0 ? m / ten[-exponent] : m * ten[exponent];
        *value = negative ? -m : m;
        return i;
    }
    char some[512], *text = i < sizeof some ? some : malloc(i + 1);
    if (!text) { *value = NAN; return i; }
    memcpy(text, s, i);
    text[i] = 0;
    *value = strtod(text, NULL);
    if (text != some) free(text);
    return i;
}

/* ---------------------------------------------------------------------------------------------------------- the scanner */

enum { AMBIGUOUS = 1, CONFIRM = 2, PENDING = 4, SEEN = 8 };     /* entry flags; SEEN: it came again */
enum { FIELDS_UNSET = 0, FIELDS_WANTED, FIELDS_KNOWN, BY_HAND }; /* how an entry's numbers are read */
enum { FAILURE = 'F', DROP = 'D', METRIC = 'M', LEFT = 'L', YIELDS = 'Y' }; /* a rule's action; see _actions in matcher.py */

typedef struct { u64 hash; u32 shape, length; int32_t verdict; u32 fields; uint16_t field_count; u8 flags, reading; } Entry;
typedef struct { uint16_t series, run; int8_t lead; u8 unused; uint16_t unused2; double scale, constant; } Field;
typedef struct { u32 tag, entry; } Slot;
typedef struct {
    u32 start, end;      /* in the block, without its terminator; cut to LONGEST */
    u32 body, body_end;  /* in the block, or in the scanner's `cleaned` when `escaped` */
    u32 text;            /* where the text begins there (body less prefixes) */
    u32 cut, line_feeds; /* bytes beyond LONGEST; LFs since the segment before */
    int32_t entry, verdict;
    u64 line; /* set where Python has to read the numbers */
    u8 escaped, reading;
} Segment;
typedef struct { u64 line; u32 offset, length; int32_t rule; u32 cut, start, end; } Kept; /* matcher.KEPT */
typedef struct { double step, value; u64 line; u32 start, end, series, unused; } Number;

typedef struct { void *items; size_t count, room, size; } Vector;

static void *grow(Vector *v, size_t more) {
    if (!v->items || v->count + more > v->room) {
        size_t room = v->room ? v->room : 64;
        while (room < v->count + more) room *= 2;
        void *items = realloc(v->items, room * v->size);
        if (!items) return NULL;
        v->items = items;
        v->room = room;
    }
    return (char *)v->items + v->count * v->size;
}

#define DATABASES 4 /* base and delta of: blind with relaxed, sensitive */
enum { SHAPES = 0, SENSITIVE = 2 };
#define RELAXED (1u << 20) /* added to a rule's number for its relaxed pattern; databases.py has the same number */

typedef struct { u64 hash; u32 segment, at, length; } Waiting; /* a shape in shape_room, and whose it is */

typedef struct {
    PyObject_HEAD
    u64 seed;
    int busy, native;
    u8 *actions; /* per rule: FAILURE and so on, +128 where only Python can confirm a hit */
    u32 rules;
    void *databases[DATABASES], *scratch;
    Slot *slots;
    u32 slot_mask;
    Vector entries, arena, fields, segments, cleaned, kept, text, numbers, asked, wanted, pending;
    u32 *counts;
    u8 *shape_room;
    Waiting waiting[BATCH];
    u32 waiting_count, shape_end;
} Scanner;

static u64 mix(u64 a, u64 b) {
    __uint128_t product = (__uint128_t)a * b;
    return (u64)product ^ (u64)(product >> 64);
}

static u64 hash_of(const u8 *s, size_t n, u64 seed) { /* s is zero-padded to a multiple of 16 */
    u64 h = seed ^ (n * 0x9e3779b97f4a7c15ull);
    for (size_t i = 0; i < n; i += 16) {
        u64 a, b;
        memcpy(&a, s + i, 8);
        memcpy(&b, s + i + 8, 8);
        h = mix(a ^ 0xa0761d6478bd642full ^ h, b ^ 0xe7037ed1a0b428dbull);
    }
    return mix(h, seed | 1);
}

/* The same for shapes, of which there are many; s is zero-padded to a multiple of 32. Two products at a time: one waits for the
   other no longer. */
static u64 hash_of_shape(const u8 *s, size_t n, u64 seed) {
    u64 h = seed ^ (n * 0x9e3779b97f4a7c15ull), g = ~seed;
    for (size_t i = 0; i < n; i += 32) {
        u64 v[4];
        memcpy(v, s + i, sizeof v);
        h = mix(v[0] ^ 0xa0761d6478bd642full ^ h, v[1] ^ 0xe7037ed1a0b428dbull);
        g = mix(v[2] ^ 0x8ebc6af09c88c6e3ull ^ g, v[3] ^ 0x589965cc75374cc3ull);
    }
    return mix(h ^ (g << 32 | g >> 32), seed | 1);
}

static u32 key_of(const Scanner *z, int32_t rule) { /* order of precedence: failures, filters, what is left to folds, filters that yield to that; then by number */
    if (rule < 0) return UINT32_MAX;
    int action = z->actions[rule] & 127;
    return (u32)rule | (action == FAILURE ? 0 : action == LEFT ? 2u << 29 : action == YIELDS ? 3u << 29 : 1u << 29);
}

typedef struct { const Scanner *z; int32_t best; int confirm, relaxed; } Hits;

static int on_hit(unsigned id, unsigned long long from, unsigned long long to, unsigned flags, void *context) {
    Hits *hits = context;
    (void)from; (void)to; (void)flags;
    if (id >= RELAXED) hits->relaxed = 1;
    else if (id < hits->z->rules) {
        if (hits->z->actions[id] & 128) hits->confirm = 1;
        if (key_of(hits->z, (int32_t)id) < key_of(hits->z, hits->best)) hits->best = (int32_t)id;
    }
    return 0;
}

static int ask_engine(Scanner *z, int which, const u8 *body, size_t n, Hits *hits) {
    for (int k = which; k < which + 2; k++)
        if (z->databases[k] && hs.scan(z->databases[k], (const char *)body, (unsigned)n, 0, z->scratch, on_hit, hits)) return -1;
    return 0;
}

static void forget(Scanner *z) {
    z->entries.count = z->arena.count = z->fields.count = 0;
    memset(z->slots, 0, ((size_t)z->slot_mask + 1) * sizeof *z->slots);
}

/* Between two blocks: when there are too many shapes, forget those that did not come again; most of them never will. */
static void make_room(Scanner *z) {
    if (z->entries.count <= MOST_ENTRIES && z->arena.count <= MOST_ARENA) return;
    Entry *entries = z->entries.items;
    u8 *arena = z->arena.items;
    size_t kept = 0, end = 0;
    for (size_t e = 0; e < z->entries.count; e++) {
        if (!(entries[e].flags & SEEN)) continue;
        memmove(arena + end, arena + entries[e].shape, entries[e].length); /* shapes lie in the order of their entries */
        entries[kept] = entries[e];
        entries[kept].shape = (u32)end;
        entries[kept].flags &= (u8)~SEEN;
        end += entries[kept++].length;
    }
    if (kept > MOST_ENTRIES / 2 || end > MOST_ARENA / 2 || z->fields.count > MOST_FIELDS) { forget(z); return; }
    z->entries.count = kept;
    z->arena.count = end;
    memset(z->slots, 0, ((size_t)z->slot_mask + 1) * sizeof *z->slots);
    for (u32 e = 0; e < kept; e++) {
        u32 at = (u32)entries[e].hash & z->slot_mask;
        while (z->slots[at].entry) at = (at + 1) & z->slot_mask;
        z->slots[at] = (Slot){(u32)(entries[e].hash >> 32), e + 1};
    }
}

static int widen(Scanner *z) {
    u32 mask = z->slot_mask * 2 + 1;
    Slot *slots = calloc((size_t)mask + 1, sizeof *slots);
    if (!slots) return -1;
    const Entry *entries = z->entries.items;
    for (u32 e = 0; e < z->entries.count; e++) {
        u32 at = (u32)entries[e].hash & mask;
        while (slots[at].entry) at = (at + 1) & mask;
        slots[at] = (Slot){(u32)(entries[e].hash >> 32), e + 1};
    }
    free(z->slots);
    z->slots = slots;
    z->slot_mask = mask;
    return 0;
}

/* The entry of a shape, made when it is new (*fresh); -2 for no memory. */
static int32_t look_up(Scanner *z, const u8 *s, size_t length, u64 h, int *fresh) {
    *fresh = 0;
    u32 at = (u32)h & z->slot_mask, tag = (u32)(h >> 32);
    for (; z->slots[at].entry; at = (at + 1) & z->slot_mask) {
        if (z->slots[at].tag != tag) continue;
        Entry *e = (Entry *)z->entries.items + (z->slots[at].entry - 1);
        if (e->length == length && memcmp((const u8 *)z->arena.items + e->shape, s, length) == 0) {
            if (!(e->flags & SEEN)) e->flags |= SEEN;
            return (int32_t)(z->slots[at].entry - 1);
        }
    }
    u8 *room = grow(&z->arena, length);
    Entry *entry = grow(&z->entries, 1);
    if (!room || !entry) return -2;
    memcpy(room, s, length);
    *entry = (Entry){.hash = h, .shape = (u32)z->arena.count, .length = (u32)length, .verdict = UNKNOWN};
    z->arena.count += length;
    z->slots[at] = (Slot){tag, (u32)++z->entries.count};
    *fresh = 1;
    if (z->entries.count * 2 > z->slot_mask && widen(z)) return -2;
    return (int32_t)z->entries.count - 1;
}

static const u8 *body_of(const Scanner *z, const u8 *block, const Segment *g) {
    return (g->escaped ? (const u8 *)z->cleaned.items : block) + g->body;
}

/* Those that wait are hashed, and memory is asked for what they will be compared with: first their slots, then the entries there. */
static void expect_entries(Scanner *z) {
    const Entry *entries = z->entries.items, *likely[BATCH];
    for (u32 k = 0; k < z->waiting_count; k++) {
        Waiting *w = &z->waiting[k];
        w->hash = hash_of_shape(z->shape_room + w->at, w->length, z->seed);
        __builtin_prefetch(&z->slots[(u32)w->hash & z->slot_mask]);
    }
    for (u32 k = 0; k < z->waiting_count; k++) {
        u64 h = z->waiting[k].hash;
        const Slot *slot = &z->slots[(u32)h & z->slot_mask];
        likely[k] = slot->entry && slot->tag == (u32)(h >> 32) ? entries + (slot->entry - 1) : NULL;
        if (likely[k]) __builtin_prefetch(likely[k]);
    }
    for (u32 k = 0; k < z->waiting_count; k++)
        for (u32 at = 0; likely[k] && at < z->waiting[k].length && at < 256; at += 64)
            __builtin_prefetch((const u8 *)z->arena.items + likely[k]->shape + at);
}

/* The segments that wait are looked up, and judged where the engine is at hand; -1 for no memory. */
static int look_up_waiting(Scanner *z, const u8 *block) {
    expect_entries(z);
    for (u32 k = 0; k < z->waiting_count; k++) {
        const Waiting *w = &z->waiting[k];
        Segment *g = (Segment *)z->segments.items + w->segment;
        int fresh;
        g->entry = look_up(z, z->shape_room + w->at, w->length, w->hash, &fresh);
        if (g->entry == -2) return -1;
        if (!fresh) continue;
        Entry *e = (Entry *)z->entries.items + g->entry;
        if (z->native) {
            Hits hits = {z, UNKNOWN, 0, 0};
            if (ask_engine(z, SHAPES, body_of(z, block, g), g->body_end - g->body, &hits)) return -1;
            e->verdict = hits.best;
            e->flags = (u8)((hits.relaxed ? AMBIGUOUS : 0) | (hits.confirm ? CONFIRM : 0));
        } else {
            u32 *room = grow(&z->pending, 1);
            if (!room) return -1;
            *room = w->segment;
            z->pending.count++;
            e->flags = PENDING;
        }
    }
    z->waiting_count = z->shape_end = 0;
    return 0;
}

/* One segment of the block: cut, cleaned, and made ready to be looked up. */
static int add_segment(Scanner *z, const u8 *block, size_t size, u32 start, u32 end, int has_escape, u32 line_feeds) {
    Segment g = {.start = start, .end = end, .line_feeds = line_feeds, .entry = -1, .verdict = UNKNOWN};
    if (end - start > LONGEST) { g.cut = end - start - LONGEST; g.end = start + LONGEST; }
    const u8 *base = block;
    u32 from = g.start, to = g.end;
    if (has_escape) {
        u8 *room = grow(&z->cleaned, to - from);
        if (!room) return -1;
        from = (u32)z->cleaned.count;
        to = from + (u32)clean(block + g.start, g.end - g.start, room);
        z->cleaned.count = to;
        base = z->cleaned.items;
        g.escaped = 1;
    }
    g.text = from;
    g.body = from + (u32)body_start(base + from, to - from);
    g.body_end = to;
    const u8 *body = base + g.body;
    size_t n = to - g.body, k = 0;
    while (k < n && (blank(body[k]) || body[k] == '\f' || body[k] == '\v')) k++;
    if (k == n && !g.cut) return 1; /* nothing but blanks */
    Segment *room = grow(&z->segments, 1);
    if (!room) return -1;
    *room = g;
    u32 number_of = (u32)z->segments.count++;
    if (n > LONGEST_SHAPE) return 0;
    u8 *s = z->shape_room + z->shape_end;
    size_t length = shape(body, n, g.escaped ? body + n : block + size, s);
    memset(s + length, 0, 32);
    z->waiting[z->waiting_count++] = (Waiting){0, number_of, z->shape_end, (u32)length};
    z->shape_end += (u32)length + 32;
    return z->waiting_count == BATCH ? look_up_waiting(z, block) : 0;
}

#define MARKED 4096u /* bytes in which the ends of segments are looked for at a time */
typedef struct { u64 ends[MARKED / 64], escapes[MARKED / 64]; } Marks; /* a bit for each byte */

static void mark_scalar(const u8 *s, size_t n, Marks *m) {
    for (size_t base = 0; base < n; base += 64) {
        u64 ends = 0, escapes = 0;
        for (size_t k = 0; k < 64 && base + k < n; k++) {
            u8 c = s[base + k];
            ends |= (u64)(c == '\n' || c == '\r' || c == 0) << k;
            escapes |= (u64)(c == 0x1b) << k;
        }
        m->ends[base / 64] = ends;
        m->escapes[base / 64] = escapes;
    }
}

#if defined(__SSE2__)
static void mark_sse2(const u8 *s, size_t n, Marks *m) {
    size_t base = 0;
    for (; base + 64 <= n; base += 64) {
        u64 ends = 0, escapes = 0;
        for (int k = 0; k < 4; k++) {
            __m128i v = _mm_loadu_si128((const __m128i *)(s + base + 16 * k));
            __m128i end = _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('\n')),
                                       _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('\r')), _mm_cmpeq_epi8(v, _mm_setzero_si128())));
            ends |= (u64)(u32)_mm_movemask_epi8(end) << (16 * k);
            escapes |= (u64)(u32)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8(0x1b))) << (16 * k);
        }
        m->ends[base / 64] = ends;
        m->escapes[base / 64] = escapes;
    }
    if (base < n) {
        Marks last;
        mark_scalar(s + base, n - base, &last);
        m->ends[base / 64] = last.ends[0];
        m->escapes[base / 64] = last.escapes[0];
    }
}

__attribute__((target("avx2"))) static void mark_avx2(const u8 *s, size_t n, Marks *m) {
    const __m256i line_feed = _mm256_set1_epi8('\n'), carriage_return = _mm256_set1_epi8('\r'), escape = _mm256_set1_epi8(0x1b);
    size_t base = 0;
    for (; base + 64 <= n; base += 64) {
        u64 ends = 0, escapes = 0;
        for (int k = 0; k < 2; k++) {
            __m256i v = _mm256_loadu_si256((const __m256i *)(s + base + 32 * k));
            __m256i end = _mm256_or_si256(_mm256_cmpeq_epi8(v, line_feed),
                                          _mm256_or_si256(_mm256_cmpeq_epi8(v, carriage_return), _mm256_cmpeq_epi8(v, _mm256_setzero_si256())));
            ends |= (u64)(u32)_mm256_movemask_epi8(end) << (32 * k);
            escapes |= (u64)(u32)_mm256_movemask_epi8(_mm256_cmpeq_epi8(v, escape)) << (32 * k);
        }
        m->ends[base / 64] = ends;
        m->escapes[base / 64] = escapes;
    }
    if (base < n) {
        Marks last;
        mark_scalar(s + base, n - base, &last);
        m->ends[base / 64] = last.ends[0];
        m->escapes[base / 64] = last.escapes[0];
    }
}

__attribute__((target("avx512f,avx512bw"))) static void mark_avx512(const u8 *s, size_t n, Marks *m) {
    for (size_t base = 0; base < n; base += 64) {
        u64 valid = n - base < 64 ? (1ull << (n - base)) - 1 : ~0ull;
        __m512i v = _mm512_maskz_loadu_epi8(valid, s + base);
        m->ends[base / 64] = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('\n')) | _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('\r'))
                             | _mm512_mask_testn_epi8_mask(valid, v, v);
        m->escapes[base / 64] = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8(0x1b));
    }
}
#endif

typedef void (*Marking)(const u8 *, size_t, Marks *);
static Marking markings[4] = {mark_scalar}, mark = mark_scalar; /* all that this processor can do; the fastest of them */

static void set_up_marks(void) {
#if defined(__SSE2__)
    int ways = 1;
    markings[ways++] = mark_sse2;
    if (__builtin_cpu_supports("avx2")) markings[ways++] = mark_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) markings[ways++] = mark_avx512;
    mark = markings[ways - 1];
#endif
}

/* Segments of the block; returns the LFs after the last one, or -1 for no memory. */
static long long split(Scanner *z, const u8 *block, size_t n) {
    u32 start = 0, line_feeds = 0;
    long long escape = -1;
    Marks marks;
    for (size_t base = 0; base < n; base += 64) {
        if (base % MARKED == 0) mark(block + base, n - base < MARKED ? n - base : MARKED, &marks);
        u64 ends = marks.ends[base % MARKED / 64], escapes = marks.escapes[base % MARKED / 64];
        while (ends) {
            int bit = __builtin_ctzll(ends);
            u64 before = escapes & ((1ull << bit) - 1);
            if (before) escape = (long long)base + 63 - __builtin_clzll(before);
            u32 at = (u32)base + (u32)bit;
            if (at > start) {
                int status = add_segment(z, block, n, start, at, escape >= (long long)start, line_feeds);
                if (status < 0) return -1;
                if (status == 0) line_feeds = 0;
            }
            line_feeds += block[at] == '\n';
            start = at + 1;
            ends &= ends - 1;
        }
        if (escapes) escape = (long long)base + 63 - __builtin_clzll(escapes);
    }
    return look_up_waiting(z, block) ? -1 : line_feeds;
}

/* The verdict of each segment, as far as it can be had without Python; the others go to `asked` and `wanted`. */
static int settle(Scanner *z, const u8 *block) {
    Segment *segments = z->segments.items;
    Entry *entries = z->entries.items;
    for (u32 k = 0; k < z->segments.count; k++) {
        Segment *g = &segments[k];
        Entry *e = g->entry >= 0 ? &entries[g->entry] : NULL;
        int ask = e ? e->flags & CONFIRM : !z->native;
        Hits hits = {z, e ? e->verdict : UNKNOWN, 0, 0};
        const u8 *body = body_of(z, block, g);
        size_t n = g->body_end - g->body;
        if (!ask && (!e || e->flags & AMBIGUOUS)) {
            if (!z->native) ask = 1;
            else if ((!e && ask_engine(z, SHAPES, body, n, &hits)) || ask_engine(z, SENSITIVE, body, n, &hits)) return -1;
            else ask = hits.confirm;
        }
        g->verdict = hits.best;
        if (ask) {
            u32 *room = grow(&z->asked, 1);
            if (!room) return -1;
            *room = k;
            z->asked.count++;
            g->reading = BY_HAND;
        } else if (hits.best >= 0 && (z->actions[hits.best] & 127) == METRIC) {
            if (!e || hits.best != e->verdict) g->reading = BY_HAND;
            else if (e->reading == FIELDS_UNSET) {
                u32 *room = grow(&z->wanted, 1);
                if (!room) return -1;
                *room = k;
                z->wanted.count++;
                e->reading = FIELDS_WANTED;
            }
        }
    }
    return 0;
}

/* Where the digit runs of a body begin, at most `most` of them. */
static size_t runs_of(const u8 *s, size_t n, u32 *runs, size_t most) {
    size_t count = 0;
    int before = 0;
    size_t i = 0;
#if defined(__SSE2__)
    const __m128i zero = _mm_set1_epi8('0'), nine = _mm_set1_epi8(9);
    for (; i + 16 <= n && count < most; i += 16) {
        __m128i from_zero = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)(s + i)), zero);
        unsigned d = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(from_zero, nine), from_zero));
        unsigned begins = d & ~(d << 1 | (unsigned)before);
        before = d >> 15 & 1;
        for (; begins && count < most; begins &= begins - 1) runs[count++] = (u32)i + (u32)__builtin_ctz(begins);
    }
#endif
    for (; i < n && count < most; i++) {
        int d = digit(s[i]);
        if (d && !before) runs[count++] = (u32)i;
        before = d;
    }
    return count;
}

#define MOST_RUNS_OF_DIGITS 256

/* The numbers of one metric segment; -1 for no memory. Series 0 is the step, and stands for the whole line. */
static int read_numbers(Scanner *z, const u8 *body, size_t n, const Entry *e, const Segment *g, u64 line) {
    u32 runs[MOST_RUNS_OF_DIGITS];
    const Field *fields = (const Field *)z->fields.items + e->fields;
    size_t most = 0;
    for (int k = 0; k < e->field_count; k++)
        if (fields[k].run != 0xffff && fields[k].run + 1u > most) most = fields[k].run + 1u;
    size_t count = runs_of(body, n, runs, most < MOST_RUNS_OF_DIGITS ? most : MOST_RUNS_OF_DIGITS);
    Number *room = grow(&z->numbers, e->field_count);
    if (!room) return -1;
    double step = NAN;
    size_t first = z->numbers.count;
    for (int k = 0; k < e->field_count; k++) {
        const Field *f = &fields[k];
        double value = f->constant;
        if (f->run != 0xffff) {
            if (f->run >= count || (int)runs[f->run] < f->lead) continue;
            u32 at = runs[f->run] - (u32)f->lead;
            if (!number(body + at, n - at, &value)) continue;
        }
        value *= f->scale;
        if (f->series == 0) step = value;
        *room++ = (Number){NAN, value, line, g->start, g->end, f->series, 0};
        z->numbers.count++;
    }
    Number *all = z->numbers.items;
    for (size_t k = first; k < z->numbers.count; k++) all[k].step = step;
    return 0;
}

typedef struct { u64 line; int content, kept; int32_t rule; } Cursor;
typedef struct { u64 lines, blank, kept, kept_bytes; } Tally;

static void close_lines(Scanner *z, Cursor *c, Tally *t, u32 line_feeds) {
    if (!line_feeds) return;
    t->lines += line_feeds;
    if (!c->content) t->blank++;
    else if (c->kept) t->kept++;
    else z->counts[c->rule]++;
    t->blank += line_feeds - 1;
    *c = (Cursor){c->line + line_feeds, 0, 0, UNKNOWN};
}

/* Counts, kept text and numbers. Segments whose numbers Python must read are put into `wanted`. */
static int emit(Scanner *z, const u8 *block, Cursor *c, Tally *t) {
    Segment *segments = z->segments.items;
    for (u32 k = 0; k < z->segments.count; k++) {
        Segment *g = &segments[k];
        close_lines(z, c, t, g->line_feeds);
        c->content = 1;
        int action = g->verdict < 0 ? 0 : z->actions[g->verdict] & 127;
        if (action == LEFT) { action = 0; g->verdict = UNKNOWN; }
        const u8 *base = g->escaped ? z->cleaned.items : block;
        if (action == 0 || action == FAILURE || g->cut) {
            u32 length = g->body_end - g->text;
            u8 *text = grow(&z->text, length + 1);
            Kept *kept = grow(&z->kept, 1);
            if (!text || !kept) return -1;
            *kept = (Kept){c->line, (u32)z->text.count, length, g->verdict, g->cut, g->start, g->end};
            memcpy(text, base + g->text, length);
            text[length] = '\n';
            z->text.count += length + 1;
            z->kept.count++;
            c->kept = 1;
            t->kept_bytes += length + 1;
            continue;
        }
        c->rule = g->verdict;
        if (action != METRIC) continue;
        const Entry *e = g->entry >= 0 ? (const Entry *)z->entries.items + g->entry : NULL;
        if (g->reading == BY_HAND || !e || e->reading == BY_HAND) {
            u32 *room = grow(&z->wanted, 1);
            if (!room) return -1;
            *room = k;
            z->wanted.count++;
            g->line = c->line;
        } else if (read_numbers(z, base + g->body, g->body_end - g->body, e, g, c->line)) return -1;
    }
    return 0;
}

/* --------------------------------------------------------------------------------------------------- towards Python */

static PyObject *bytes_of_body(const Scanner *z, const u8 *block, const Segment *g) {
    return PyBytes_FromStringAndSize((const char *)body_of(z, block, g), (Py_ssize_t)(g->body_end - g->body));
}

static int valid_rule(const Scanner *z, long rule) {
    if (rule >= UNKNOWN && rule < (long)z->rules) return 1;
    PyErr_Format(PyExc_ValueError, "there is no rule %ld", rule);
    return 0;
}

/* Shapes that only Python's engine can judge: owner.judge_shape(body) -> (rule, flags) */
static int resolve_pending(Scanner *z, const u8 *block, PyObject *owner) {
    for (size_t k = 0; k < z->pending.count; k++) {
        const Segment *g = (const Segment *)z->segments.items + ((u32 *)z->pending.items)[k];
        PyObject *body = bytes_of_body(z, block, g);
        PyObject *answer = body ? PyObject_CallMethod(owner, "judge_shape", "O", body) : NULL;
        long rule;
        int flags;
        int fine = answer && PyArg_ParseTuple(answer, "li", &rule, &flags) && valid_rule(z, rule);
        Py_XDECREF(body);
        Py_XDECREF(answer);
        if (!fine) return -1;
        Entry *e = (Entry *)z->entries.items + g->entry;
        e->verdict = (int32_t)rule;
        e->flags = (u8)((e->flags & SEEN) | (flags & (AMBIGUOUS | CONFIRM)));
    }
    return 0;
}

/* Lines that only Python can judge: owner.judge(body) -> rule */
static int resolve_asked(Scanner *z, const u8 *block, PyObject *owner) {
    for (size_t k = 0; k < z->asked.count; k++) {
        Segment *g = (Segment *)z->segments.items + ((u32 *)z->asked.items)[k];
        PyObject *body = bytes_of_body(z, block, g);
        PyObject *answer = body ? PyObject_CallMethod(owner, "judge", "O", body) : NULL;
        long rule = answer ? PyLong_AsLong(answer) : UNKNOWN;
        int fine = answer && !PyErr_Occurred() && valid_rule(z, rule);
        Py_XDECREF(body);
        Py_XDECREF(answer);
        if (!fine) return -1;
        g->verdict = (int32_t)rule;
    }
    return 0;
}

/* Where the numbers of a new metric shape stand: owner.fields(rule, body) -> packed Fields, or None: read them by hand */
static int resolve_wanted(Scanner *z, const u8 *block, PyObject *owner) {
    for (size_t k = 0; k < z->wanted.count; k++) {
        const Segment *g = (const Segment *)z->segments.items + ((u32 *)z->wanted.items)[k];
        PyObject *body = bytes_of_body(z, block, g);
        PyObject *answer = body ? PyObject_CallMethod(owner, "fields", "lO", (long)g->verdict, body) : NULL;
        Py_XDECREF(body);
        if (!answer) return -1;
        Entry *e = (Entry *)z->entries.items + g->entry;
        if (answer == Py_None) e->reading = BY_HAND;
        else {
            char *data;
            Py_ssize_t length;
            if (PyBytes_AsStringAndSize(answer, &data, &length)) { Py_DECREF(answer); return -1; }
            size_t count = (size_t)length / sizeof(Field);
            Field *room = grow(&z->fields, count);
            if (!room) { Py_DECREF(answer); PyErr_NoMemory(); return -1; }
            memcpy(room, data, count * sizeof(Field));
            e->fields = (u32)z->fields.count;
            e->field_count = (uint16_t)count;
            e->reading = FIELDS_KNOWN;
            z->fields.count += count;
        }
        Py_DECREF(answer);
    }
    z->wanted.count = 0;
    return 0;
}

/* The numbers by series: [(series, count, steps, values, lines, starts, ends), ...] */
static PyObject *numbers_list(const Vector *numbers) {
    PyObject *list = PyList_New(0);
    const Number *all = numbers->items;
    static const size_t width[5] = {8, 8, 8, 4, 4};
    u32 highest = 0;
    for (size_t k = 0; k < numbers->count; k++) if (all[k].series > highest) highest = all[k].series;
    u32 *counts = calloc((size_t)highest + 1, sizeof *counts);
    if (!list || !counts) { free(counts); Py_XDECREF(list); return PyErr_NoMemory(); }
    for (size_t k = 0; k < numbers->count; k++) counts[all[k].series]++;
    for (u32 series = 0; list && series <= highest && numbers->count; series++) {
        if (!counts[series]) continue;
        PyObject *columns[5] = {0};
        char *data[5];
        int fine = 1;
        for (int c = 0; c < 5; c++) {
            columns[c] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(counts[series] * width[c]));
            if (!columns[c]) { fine = 0; break; }
            data[c] = PyBytes_AsString(columns[c]);
        }
        if (fine) {
            size_t at = 0;
            for (size_t k = 0; k < numbers->count; k++) {
                if (all[k].series != series) continue;
                ((double *)(void *)data[0])[at] = all[k].step;
                ((double *)(void *)data[1])[at] = all[k].value;
                ((u64 *)(void *)data[2])[at] = all[k].line;
                ((u32 *)(void *)data[3])[at] = all[k].start;
                ((u32 *)(void *)data[4])[at] = all[k].end;
                at++;
            }
        }
        PyObject *row = fine ? Py_BuildValue("(kkOOOOO)", (unsigned long)series, (unsigned long)counts[series], columns[0],
                                             columns[1], columns[2], columns[3], columns[4]) : NULL;
        for (int c = 0; c < 5; c++) Py_XDECREF(columns[c]);
        if (!row || PyList_Append(list, row)) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    free(counts);
    return list;
}

static PyObject *by_hand_list(const Scanner *z, const u8 *block) { /* [(start, end, line, rule, body), ...] */
    PyObject *list = PyList_New(0);
    for (size_t k = 0; list && k < z->wanted.count; k++) {
        const Segment *g = (const Segment *)z->segments.items + ((u32 *)z->wanted.items)[k];
        PyObject *body = bytes_of_body(z, block, g);
        PyObject *row = body ? Py_BuildValue("(IIKiO)", g->start, g->end, (unsigned long long)g->line, (int)g->verdict, body) : NULL;
        Py_XDECREF(body);
        if (!row || PyList_Append(list, row)) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *counts_list(const Scanner *z) {
    PyObject *list = PyList_New(0);
    for (u32 k = 0; list && k < z->rules; k++) {
        if (!z->counts[k]) continue;
        PyObject *row = Py_BuildValue("(II)", k, z->counts[k]);
        if (!row || PyList_Append(list, row)) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

/* scan(block, (line, content, kept, rule), owner) */
static PyObject *scanner_scan(PyObject *self, PyObject *args) {
    Scanner *z = (Scanner *)self;
    PyObject *source, *owner, *result = NULL;
    unsigned long long line;
    int content, kept, rule;
    if (!PyArg_ParseTuple(args, "O(Kppi)O", &source, &line, &content, &kept, &rule, &owner) || !valid_rule(z, rule)) return NULL;
    if (content && !kept && rule < 0) { PyErr_SetString(PyExc_ValueError, "a line that was dropped has a rule"); return NULL; }
    if (z->busy) { PyErr_SetString(PyExc_RuntimeError, "this scanner is at work in another thread"); return NULL; }
    Py_buffer view;
    if (PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)) return NULL;
    if (view.len > (1 << 30)) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "a block is 1 GiB at most");
        return NULL;
    }
    z->busy = 1;
    const u8 *block = view.buf;
    Cursor cursor = {line, content, kept, rule};
    Tally tally = {0};
    z->segments.count = z->cleaned.count = z->kept.count = z->text.count = z->numbers.count = 0;
    z->asked.count = z->wanted.count = z->pending.count = z->waiting_count = z->shape_end = 0;
    memset(z->counts, 0, ((size_t)z->rules + 1) * sizeof *z->counts);
    make_room(z);
    long long after;
    int status = 0;
    Py_BEGIN_ALLOW_THREADS
    /* `cleaned` may not move while bodies point into it: it holds at most the whole block */
    after = grow(&z->cleaned, (size_t)view.len) ? split(z, block, (size_t)view.len) : -1;
    Py_END_ALLOW_THREADS
    if (after < 0) { PyErr_NoMemory(); goto done; }
    if (z->pending.count && resolve_pending(z, block, owner)) goto done;
    Py_BEGIN_ALLOW_THREADS
    status = settle(z, block);
    Py_END_ALLOW_THREADS
    if (status) { PyErr_NoMemory(); goto done; }
    if (z->asked.count && resolve_asked(z, block, owner)) goto done;
    if (z->wanted.count && resolve_wanted(z, block, owner)) goto done;
    Py_BEGIN_ALLOW_THREADS
    status = emit(z, block, &cursor, &tally);
    if (!status) close_lines(z, &cursor, &tally, (u32)after);
    Py_END_ALLOW_THREADS
    if (status) { PyErr_NoMemory(); goto done; }
    PyObject *numbers = numbers_list(&z->numbers), *by_hand = by_hand_list(z, block), *counts = counts_list(z);
    if (numbers && by_hand && counts)
        result = Py_BuildValue("(y#y#OOOKKKK(KOOi))", z->text.items ? (const char *)z->text.items : "", (Py_ssize_t)z->text.count,
                               z->kept.items ? (const char *)z->kept.items : "",
                               (Py_ssize_t)(z->kept.count * sizeof(Kept)), numbers, by_hand, counts,
                               (unsigned long long)tally.lines, (unsigned long long)tally.blank,
                               (unsigned long long)tally.kept, (unsigned long long)tally.kept_bytes,
                               (unsigned long long)cursor.line, cursor.content ? Py_True : Py_False,
                               cursor.kept ? Py_True : Py_False, (int)cursor.rule);
    Py_XDECREF(numbers);
    Py_XDECREF(by_hand);
    Py_XDECREF(counts);
done:
    z->busy = 0;
    PyBuffer_Release(&view);
    return result;
}

static void drop_databases(Scanner *z) {
    for (int k = 0; k < DATABASES; k++) {
        if (z->databases[k]) hs.free_database(z->databases[k]);
        z->databases[k] = NULL;
    }
}

/* use(actions, databases): a rule set; forgets every shape. databases: four serialised or None; empty without libhs */
static PyObject *scanner_use(PyObject *self, PyObject *args) {
    Scanner *z = (Scanner *)self;
    const char *actions;
    Py_ssize_t rules;
    PyObject *databases;
    if (!PyArg_ParseTuple(args, "y#O", &actions, &rules, &databases)) return NULL;
    if (z->busy) { PyErr_SetString(PyExc_RuntimeError, "this scanner is at work in another thread"); return NULL; }
    u8 *own = malloc((size_t)rules + 1);
    u32 *counts = calloc((size_t)rules + 1, sizeof *counts);
    if (!own || !counts) { free(own); free(counts); return PyErr_NoMemory(); }
    memcpy(own, actions, (size_t)rules);
    free(z->actions);
    free(z->counts);
    z->actions = own;
    z->counts = counts;
    z->rules = (u32)rules;
    if (hs.library) drop_databases(z);
    Py_ssize_t given = PySequence_Size(databases);
    if (given < 0) return NULL;
    z->native = given == DATABASES && hs.library;
    for (int k = 0; z->native && k < DATABASES; k++) {
        PyObject *item = PySequence_GetItem(databases, k);
        if (!item) return NULL;
        char *data;
        Py_ssize_t length;
        int status = item == Py_None ? 0
                     : PyBytes_AsStringAndSize(item, &data, &length) ? -1
                     : hs.deserialize(data, (size_t)length, &z->databases[k]) || hs.alloc_scratch(z->databases[k], &z->scratch);
        Py_DECREF(item);
        if (status) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "libhs refuses the database");
            return NULL;
        }
    }
    forget(z);
    Py_RETURN_NONE;
}

static PyObject *scanner_shapes(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromSize_t(((Scanner *)self)->entries.count);
}

static int scanner_init(PyObject *self, PyObject *args, PyObject *kwargs) {
    Scanner *z = (Scanner *)self;
    unsigned long long seed;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "K", &seed)) return -1;
    if (z->slots) { PyErr_SetString(PyExc_RuntimeError, "a scanner is made once"); return -1; }
    z->seed = seed;
    z->slot_mask = (1u << 14) - 1;
    z->slots = calloc((size_t)z->slot_mask + 1, sizeof *z->slots);
    z->shape_room = malloc(BATCH * (LONGEST_SHAPE + 32) + SHAPE_ROOM);
    z->actions = calloc(1, 1);
    z->counts = calloc(1, sizeof *z->counts);
    z->entries.size = sizeof(Entry);
    z->arena.size = z->cleaned.size = z->text.size = 1;
    z->fields.size = sizeof(Field);
    z->segments.size = sizeof(Segment);
    z->kept.size = sizeof(Kept);
    z->numbers.size = sizeof(Number);
    z->asked.size = z->wanted.size = z->pending.size = sizeof(u32);
    if (!z->slots || !z->shape_room || !z->actions || !z->counts) { PyErr_NoMemory(); return -1; }
    return 0;
}

static void scanner_dealloc(PyObject *self) {
    Scanner *z = (Scanner *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (hs.library) {
        drop_databases(z);
        if (z->scratch) hs.free_scratch(z->scratch);
    }
    Vector *vectors[] = {&z->entries, &z->arena, &z->fields, &z->segments, &z->cleaned, &z->kept, &z->text, &z->numbers,
                         &z->asked, &z->wanted, &z->pending};
    for (size_t k = 0; k < sizeof vectors / sizeof *vectors; k++) free(vectors[k]->items);
    free(z->slots);
    free(z->shape_room);
    free(z->actions);
    free(z->counts);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef scanner_methods[] = {
    {"scan", scanner_scan, METH_VARARGS, "scan(block, cursor, owner): one block of whole segments"},
    {"use", scanner_use, METH_VARARGS, "use(actions, databases): take another rule set"},
    {"shapes", scanner_shapes, METH_NOARGS, "shapes(): how many shapes are remembered"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot scanner_slots[] = {
    {Py_tp_init, (void *)scanner_init}, {Py_tp_dealloc, (void *)scanner_dealloc},
    {Py_tp_new, (void *)PyType_GenericNew}, {Py_tp_methods, scanner_methods}, {0, NULL},
};
static PyType_Spec scanner_spec = {"diagnose.matching._core.Scanner", sizeof(Scanner), 0, Py_TPFLAGS_DEFAULT, scanner_slots};

/* The twins, one at a time, for the tests that hold them to Python's. */
static PyObject *twin(PyObject *args, size_t (*function)(const u8 *, size_t, u8 *)) {
    const char *data;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "y#", &data, &n)) return NULL;
    u8 *out = malloc((size_t)n + SHAPE_ROOM);
    if (!out) return PyErr_NoMemory();
    size_t length = function((const u8 *)data, (size_t)n, out);
    PyObject *result = PyBytes_FromStringAndSize((const char *)out, (Py_ssize_t)length);
    free(out);
    return result;
}
static PyObject *twin_clean(PyObject *self, PyObject *args) { (void)self; return twin(args, clean); }
static size_t shape_alone(const u8 *s, size_t n, u8 *out) { return shape(s, n, s + n, out); }
static PyObject *twin_shape(PyObject *self, PyObject *args) { (void)self; return twin(args, shape_alone); }
/* shape_ways(body, behind) -> the shape of it, by each way that this processor has, if that stands behind it */
static PyObject *twin_shape_ways(PyObject *self, PyObject *args) {
    const char *body, *behind;
    Py_ssize_t n, more;
    (void)self;
    if (!PyArg_ParseTuple(args, "y#y#", &body, &n, &behind, &more)) return NULL;
    u8 *text = malloc((size_t)(n + more) + 1), *out = malloc((size_t)n + SHAPE_ROOM);
    PyObject *list = text && out ? PyList_New(0) : PyErr_NoMemory();
    if (list) {
        memcpy(text, body, (size_t)n);
        memcpy(text + n, behind, (size_t)more);
    }
    for (size_t k = 0; list && k < sizeof shapings / sizeof *shapings && shapings[k]; k++) {
        size_t length = shapings[k](text, (size_t)n, text + n + more, out);
        PyObject *made = PyBytes_FromStringAndSize((const char *)out, (Py_ssize_t)length);
        if (!made || PyList_Append(list, made)) Py_CLEAR(list);
        Py_XDECREF(made);
    }
    free(text);
    free(out);
    return list;
}
/* marked(text) -> (where segments end, where escapes stand) by each way that this processor has: a bit for each byte */
static PyObject *twin_marked(PyObject *self, PyObject *args) {
    const char *data;
    Py_ssize_t n;
    (void)self;
    if (!PyArg_ParseTuple(args, "y#", &data, &n)) return NULL;
    if (n > (Py_ssize_t)MARKED) { PyErr_SetString(PyExc_ValueError, "that is too long"); return NULL; }
    PyObject *list = PyList_New(0);
    for (size_t k = 0; list && k < sizeof markings / sizeof *markings && markings[k]; k++) {
        Marks marks = {{0}, {0}};
        markings[k]((const u8 *)data, (size_t)n, &marks);
        Py_ssize_t size = (n + 63) / 64 * 8;
        PyObject *row = Py_BuildValue("(y#y#)", (const char *)marks.ends, size, (const char *)marks.escapes, size);
        if (!row || PyList_Append(list, row)) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}
/* any_of(text, words) -> whether one of them stands in it; each has two bytes or more */
static PyObject *any_of(PyObject *self, PyObject *args) {
    const char *data;
    Py_ssize_t size;
    PyObject *words;
    struct { const char *bytes; Py_ssize_t length; } all[32];
    static u8 begins[1 << 16]; /* by two bytes: whether a word begins with them */
    (void)self;
    if (!PyArg_ParseTuple(args, "y#O!", &data, &size, &PyTuple_Type, &words)) return NULL;
    Py_ssize_t count = PyTuple_Size(words);
    if (count > (Py_ssize_t)(sizeof all / sizeof *all)) { PyErr_SetString(PyExc_ValueError, "that is too many words"); return NULL; }
    for (Py_ssize_t k = 0; k < count; k++)
        if (!PyArg_Parse(PyTuple_GetItem(words, k), "y#", &all[k].bytes, &all[k].length) || all[k].length < 2) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a word has two bytes or more");
            return NULL;
        }
    const u8 *s = (const u8 *)data;
    int found = 0;
    for (Py_ssize_t k = 0; k < count; k++) begins[(u8)all[k].bytes[0] << 8 | (u8)all[k].bytes[1]] = 1;
    for (Py_ssize_t i = 0; i + 1 < size && !found; i++) {
        if (!begins[s[i] << 8 | s[i + 1]]) continue;
        for (Py_ssize_t k = 0; k < count && !found; k++)
            found = all[k].length <= size - i && memcmp(s + i, all[k].bytes, (size_t)all[k].length) == 0;
    }
    for (Py_ssize_t k = 0; k < count; k++) begins[(u8)all[k].bytes[0] << 8 | (u8)all[k].bytes[1]] = 0;
    return PyBool_FromLong(found);
}
/* lines_of(data) -> how many line ends it has */
static PyObject *lines_of(PyObject *self, PyObject *data) {
    Py_buffer view;
    size_t count = 0;
    (void)self;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) return NULL;
    const u8 *s = view.buf, *end = s + view.len;
    while (s < end) { /* in pieces whose sum fits a byte: then the compiler adds many at a time */
        u8 some[32] = {0};
        for (int turn = 0; turn < 255 && end - s >= 32; turn++, s += 32)
            for (int k = 0; k < 32; k++) some[k] = (u8)(some[k] + (s[k] == '\n'));
        for (int k = 0; k < 32; k++) count += some[k];
        if (end - s < 32)
            while (s < end) count += *s++ == '\n';
    }
    PyBuffer_Release(&view);
    return PyLong_FromSize_t(count);
}
static PyObject *twin_body_start(PyObject *self, PyObject *args) {
    const char *data;
    Py_ssize_t n;
    (void)self;
    if (!PyArg_ParseTuple(args, "y#", &data, &n)) return NULL;
    return PyLong_FromSize_t(body_start((const u8 *)data, (size_t)n));
}
static PyObject *twin_number(PyObject *self, PyObject *args) {
    const char *data;
    Py_ssize_t n;
    (void)self;
    if (!PyArg_ParseTuple(args, "y#", &data, &n)) return NULL;
    double value = NAN;
    size_t length = number((const u8 *)data, (size_t)n, &value);
    return Py_BuildValue("(nd)", (Py_ssize_t)length, value);
}

/* nan, inf or infinity, signed or not: the whole of the text */
static int not_a_number(const u8 *s, size_t n, double *value) {
    static const struct { const char *word; double value; } words[] = {{"nan", NAN}, {"inf", INFINITY}, {"infinity", INFINITY}};
    int negative = n && s[0] == '-';
    if (n && (s[0] == '-' || s[0] == '+')) { s++; n--; }
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        size_t same = 0;
        while (same < n && words[k].word[same] && (s[same] | 32) == words[k].word[same]) same++;
        if (same != n || words[k].word[same]) continue;
        *value = negative ? -words[k].value : words[k].value;
        return 1;
    }
    return 0;
}

/* readings(body, [(series, scale, start, end), ...]) -> packed Fields, or None; see metrics.readings */
static PyObject *twin_readings(PyObject *self, PyObject *args) {
    const char *data;
    Py_ssize_t size;
    PyObject *captures, *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y#O!", &data, &size, &PyList_Type, &captures)) return NULL;
    const u8 *body = (const u8 *)data;
    Py_ssize_t count = PyList_Size(captures), made = 0;
    Field *fields = calloc((size_t)count + 1, sizeof *fields);
    if (!fields) return PyErr_NoMemory();
    for (Py_ssize_t k = 0; k < count; k++) {
        unsigned series;
        double scale, value;
        Py_ssize_t start, end, at;
        if (!PyArg_ParseTuple(PyList_GetItem(captures, k), "Idnn", &series, &scale, &start, &end)) goto done;
        if (start < 0 || end < start || end > size) {
            PyErr_SetString(PyExc_IndexError, "a capture is outside of the body");
            goto done;
        }
        if (not_a_number(body + start, (size_t)(end - start), &value)) {
            fields[made++] = (Field){(uint16_t)series, 0xffff, 0, 0, 0, scale, value};
            continue;
        }
        size_t length = number(body + start, (size_t)(size - start), &value);
        for (at = start; at < end && !digit(body[at]);) at++;
        if (!length || at == end) continue; /* captured text without a number */
        u32 run = 0;
        for (Py_ssize_t i = 0; i < at; i++) run += digit(body[i]) && !digit(body[i + 1]);
        if (start + (Py_ssize_t)length != end || (at && digit(body[at - 1])) || run >= MOST_RUNS_OF_DIGITS || at - start > 2) {
            result = Py_BuildValue("");
            goto done;
        }
        fields[made++] = (Field){(uint16_t)series, (uint16_t)run, (int8_t)(at - start), 0, 0, scale, NAN};
    }
    result = PyBytes_FromStringAndSize((const char *)fields, made * (Py_ssize_t)sizeof *fields);
done:
    free(fields);
    return result;
}

/* summary(doubles, from, to) -> (finite, sum, least, at, most, at): one pass over a slice of numbers */
static PyObject *summary(PyObject *self, PyObject *args) {
    PyObject *source;
    Py_ssize_t from, to;
    (void)self;
    if (!PyArg_ParseTuple(args, "Onn", &source, &from, &to)) return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)) return NULL;
    if (from < 0 || to * (Py_ssize_t)sizeof(double) > view.len) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_IndexError, "the slice is outside the numbers");
        return NULL;
    }
    const double *values = view.buf;
    Py_ssize_t finite = 0, least_at = from, most_at = from;
    double sum = 0, least = INFINITY, most = -INFINITY;
    for (Py_ssize_t k = from; k < to; k++) {
        double v = values[k];
        if (!isfinite(v)) continue;
        finite++;
        sum += v;
        if (v < least) { least = v; least_at = k; }
        if (v > most) { most = v; most_at = k; }
    }
    PyBuffer_Release(&view);
    return Py_BuildValue("(nddndn)", finite, sum, least, least_at, most, most_at);
}

/* A view of at least `least` items of `width` bytes; release it when it was given. */
static int numbers_of(PyObject *object, Py_buffer *view, size_t width, Py_ssize_t least) {
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE)) return -1;
    if (view->len >= least * (Py_ssize_t)width) return 0;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_IndexError, "the columns are not of one length");
    return -1;
}

/* rows(values, steps, lines, start, width) -> seven doubles for each bucket of `width` values */
static PyObject *rows(PyObject *self, PyObject *args) {
    PyObject *sources[3], *result = NULL;
    Py_ssize_t start, width;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOnn", &sources[0], &sources[1], &sources[2], &start, &width)) return NULL;
    if (start < 0 || width < 1) { PyErr_SetString(PyExc_ValueError, "buckets have no such place or width"); return NULL; }
    Py_buffer values, steps, lines;
    if (numbers_of(sources[0], &values, sizeof(double), 0)) return NULL;
    Py_ssize_t size = values.len / (Py_ssize_t)sizeof(double);
    if (numbers_of(sources[1], &steps, sizeof(double), size)) goto no_steps;
    if (numbers_of(sources[2], &lines, sizeof(u64), size)) goto no_lines;
    Py_ssize_t count = start < size ? (size - start - 1) / width + 1 : 0;
    result = PyBytes_FromStringAndSize(NULL, count * 7 * (Py_ssize_t)sizeof(double));
    double *row = result ? (double *)(void *)PyBytes_AsString(result) : NULL;
    for (Py_ssize_t at = start; row && at < size; at += width, row += 7) {
        Py_ssize_t end = size - at < width ? size : at + width, finite = 0;
        double sum = 0, least = INFINITY, most = -INFINITY;
        for (Py_ssize_t k = at; k < end; k++) {
            double v = ((const double *)values.buf)[k];
            if (!isfinite(v)) continue;
            finite++;
            sum += v;
            if (v < least) least = v;
            if (v > most) most = v;
        }
        double bucket[7] = {(double)((const u64 *)lines.buf)[at], ((const double *)steps.buf)[at], (double)(end - at),
                            (double)finite, sum, least, most};
        memcpy(row, bucket, sizeof bucket);
    }
    PyBuffer_Release(&lines);
no_lines:
    PyBuffer_Release(&steps);
no_steps:
    PyBuffer_Release(&values);
    return result;
}

/* sketch(factors, features) -> of each pair of factors the least (a * feature + b) % (2^61 - 1), its lower half; see fingerprint */
static PyObject *sketch(PyObject *self, PyObject *args) {
    const char *factors, *features;
    Py_ssize_t pairs, count;
    (void)self;
    if (!PyArg_ParseTuple(args, "y#y#", &factors, &pairs, &features, &count)) return NULL;
    pairs /= 2 * (Py_ssize_t)sizeof(u64);
    count /= (Py_ssize_t)sizeof(u32);
    PyObject *result = PyTuple_New(pairs);
    for (Py_ssize_t p = 0; result && p < pairs; p++) {
        u64 pair[2], least = UINT64_MAX;
        memcpy(pair, factors + p * (Py_ssize_t)sizeof pair, sizeof pair);
        for (Py_ssize_t k = 0; k < count; k++) {
            u32 feature;
            memcpy(&feature, features + k * (Py_ssize_t)sizeof feature, sizeof feature);
            u64 value = (u64)(((__uint128_t)pair[0] * feature + pair[1]) % ((1ull << 61) - 1));
            if (value < least) least = value;
        }
        PyObject *number = PyLong_FromUnsignedLong((u32)least);
        if (!number || PyTuple_SetItem(result, p, number)) Py_CLEAR(result);
    }
    return result;
}

#define HISTORY 32
#define GROUP 8

static double limit_of(const double *recent, int n, double factor) {
    double ordered[HISTORY];
    for (int k = 0; k < n; k++) {
        int at = k;
        for (; at && ordered[at - 1] > recent[k]; at--) ordered[at] = ordered[at - 1];
        ordered[at] = recent[k];
    }
    /* the median, and the median distance from it: distances grow outwards on both sides */
    double median = ordered[n / 2], spread = 0;
    for (int k = 0, left = n / 2 - 1, right = n / 2; k <= n / 2; k++) {
        double below = left >= 0 ? median - ordered[left] : INFINITY, above = right < n ? ordered[right] - median : INFINITY;
        if (below < above) { spread = below; left--; }
        else { spread = above; right++; }
    }
    double part = (factor - 1) * fabs(median), wide = 8 * spread;
    return median + (wide > part ? wide : part);
}

/* stand_out(values, factor, recent, until, limit) -> (found, recent, until, limit); see watch.stand_out */
static PyObject *stand_out(PyObject *self, PyObject *args) {
    PyObject *source, *past, *found = NULL, *kept = NULL, *result = NULL;
    double factor, limit, recent[HISTORY];
    int until;
    (void)self;
    if (!PyArg_ParseTuple(args, "OdOid", &source, &factor, &past, &until, &limit)) return NULL;
    Py_ssize_t held = PySequence_Size(past);
    if (held < 0) return NULL;
    if (held > HISTORY || until < 1) { PyErr_SetString(PyExc_ValueError, "that is not the state of a watch"); return NULL; }
    for (Py_ssize_t k = 0; k < held; k++) {
        PyObject *item = PySequence_GetItem(past, k);
        recent[k] = item ? PyFloat_AsDouble(item) : 0;
        Py_XDECREF(item);
        if (PyErr_Occurred()) return NULL;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)) return NULL;
    if (!(found = PyList_New(0))) goto done;
    for (Py_ssize_t k = 0; k < view.len / (Py_ssize_t)sizeof(double); k++) {
        double v = ((const double *)view.buf)[k];
        if (!isfinite(v) || v > limit) {
            PyObject *index = PyLong_FromSsize_t(k);
            int status = index ? PyList_Append(found, index) : -1;
            Py_XDECREF(index);
            if (status) goto done;
        }
        if (isfinite(v)) {
            if (held == HISTORY) memmove(recent, recent + 1, (size_t)--held * sizeof *recent);
            recent[held++] = v;
        }
        if (--until) continue;
        until = GROUP;
        if (held) limit = limit_of(recent, (int)held, factor);
    }
    if (!(kept = PyList_New(held))) goto done;
    for (Py_ssize_t k = 0; k < held; k++) {
        PyObject *item = PyFloat_FromDouble(recent[k]);
        if (!item || PyList_SetItem(kept, k, item)) goto done;
    }
    result = Py_BuildValue("(OOid)", found, kept, until, limit);
done:
    Py_XDECREF(found);
    Py_XDECREF(kept);
    PyBuffer_Release(&view);
    return result;
}

#include "_masks.h"
#include "_tables.h"
#include "_readings.h"
#include "_keys.h"
#include "_lists.h"
#include "_folds.h"
#include "_normal.h"
#include "_words.h"
#include "_facts.h"
#include "_columns.h"

static PyMethodDef module_methods[] = {
    {"keyed", keyed, METH_VARARGS, "keyed(body): the key of its template and the words in it, see _keys.h"},
    {"masked", masked, METH_VARARGS, "masked(body, mode): what it is whatever its numbers, see _masks.h"},
    {"normal", normal, METH_O, "normal(text): see evidence.normal; None where it is not ASCII"},
    {"open_libhs", open_libhs, METH_VARARGS, "open_libhs(name) -> version, or None where it cannot be opened"},
    {"compile", compile_database, METH_O, "compile([(pattern, flags, id), ...]) -> serialised libhs database"},
    {"clean", twin_clean, METH_VARARGS, "see lines.clean"},
    {"shape", twin_shape, METH_VARARGS, "see shapes.shape"},
    {"shape_ways", twin_shape_ways, METH_VARARGS, "shape_ways(body, behind): see shapes.shape, by each way of the processor"},
    {"marked", twin_marked, METH_VARARGS, "marked(text): where segments end and escapes stand, by each way of the processor"},
    {"aside", aside, METH_VARARGS, "see compression/facts.aside"},
    {"merged", merged, METH_VARARGS, "see series.merged"},
    {"any_of", any_of, METH_VARARGS, "any_of(text, words): whether one of them stands in it"},
    {"lines_of", lines_of, METH_O, "lines_of(data): how many line ends it has"},
    {"body_start", twin_body_start, METH_VARARGS, "see prefixes.body_start"},
    {"number", twin_number, METH_VARARGS, "see metrics.NUMBER"},
    {"readings", twin_readings, METH_VARARGS, "see metrics.readings"},
    {"summary", summary, METH_VARARGS, "see metrics.summary"},
    {"rows", rows, METH_VARARGS, "see metrics.rows"},
    {"stand_out", stand_out, METH_VARARGS, "see watch.stand_out"},
    {"sketch", sketch, METH_VARARGS, "see fingerprint.sketch"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "diagnose.matching._core", NULL, -1, module_methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void) {
    for (int c = 0; c < 256; c++) in_hosts[c] = digit((u8)c) || letter((u8)c) || c == '_' || c == '.' || c == '-';
    set_up_shapes();
    set_up_marks();
    set_up_kinds();
    set_up_roles();
    set_up_stems();
    set_up_normals();
    PyObject *m = PyModule_Create(&module);
    if (m && PyModule_AddIntConstant(m, "API", 12)) { Py_DECREF(m); return NULL; }  /* raised with databases.API */
    if (!m) return NULL;
    struct { const char *name; PyType_Spec *spec; } types[] = {{"Scanner", &scanner_spec}, {"Folds", &folds_spec}, {"Words", &words_spec}};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        PyObject *type = PyType_FromSpec(types[k].spec);
        if (!type || PyModule_AddObjectRef(m, types[k].name, type)) { Py_XDECREF(type); Py_DECREF(m); return NULL; }
        Py_DECREF(type);
    }
    return m;
}

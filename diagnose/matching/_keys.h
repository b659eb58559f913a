/* The key of a template: what lines say that one statement printed. Lines of one mask have one key, and so have lines whose masks
 * differ in how a value is written: a number or an id, one of them or a list, with or without brackets, quotes or a unit.
 *
 * It is for grouping only. Folds leave lines out, so they go by the mask. Included by _core.c.
 */
#define VALUE NUMBER_MASK

typedef struct { Vector out; size_t length; u32 word_count; Word words[MOST_WORDS]; } Key;

enum { IN_CHUNK = 1, GLUE = 2, CLOSING = 4, BETWEEN = 8, DRESS_BEFORE = 16, DRESS_BEHIND = 32, A_MARK = 64 };
static u8 roles[256]; /* what a byte of a masked text may be in a key */

static void set_up_roles(void) {
    static const struct { const char *bytes; u8 role; } all[] = {
        {".-@/:+~$*%&#", GLUE}, {")]}>", CLOSING}, {" ,;|:/.-", BETWEEN}, {"#*~@$&+.-\"'`", DRESS_BEFORE}, {"#*%~\"'`", DRESS_BEHIND},
        {"\1\2\3\4\5\6\7\10", A_MARK | IN_CHUNK},
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) for (const char *b = all[k].bytes; *b; b++) roles[(u8)*b] |= all[k].role;
    for (int c = 0; c < 256; c++) if (kinds[c] & (A_WORD | A_HIGH)) roles[c] |= IN_CHUNK;
}

static inline int is(u8 c, u8 role) { return (roles[c] & role) != 0; }

/* A value behind all that was put: one with the value before it, whatever separates the two. */
static void put_value(Key *k) {
    u8 *out = k->out.items;
    size_t at = k->length;
    while (at && is(out[at - 1], DRESS_BEFORE)) at--;
    size_t end = at;
    while (at && is(out[at - 1], BETWEEN)) at--;
    k->length = at && out[at - 1] == VALUE ? at - 1 : end;
    out[k->length++] = VALUE;
}

static int template_of(Key *k, const Masks *m) {
    const u8 *s = m->out.items;
    size_t n = m->length;
    int who = 0; /* behind the word user there is a name */
    k->length = k->word_count = 0;
    if (!grow(&k->out, n + 16)) return -1;
    u8 *out = k->out.items;
    for (size_t i = 0; i < n;) {
        u8 c = s[i], before = k->length ? out[k->length - 1] : ' ';
        if (!is(c, IN_CHUNK)) {
            i++;
            if (c == ' ' && before == ' ') continue;
            if (before == VALUE && is(c, DRESS_BEHIND)) continue;
            if (is(c, CLOSING)) {
                const u8 opening = c == ')' ? '(' : c == ']' ? '[' : c == '}' ? '{' : '<';
                size_t at = k->length - (before == VALUE);
                if (before == ' ' && at) at--;
                if (at && out[at - 1] == opening && (before == VALUE || c != '>')) { /* a value, or nothing, in brackets */
                    k->length = at - 1;
                    if (before == VALUE) put_value(k);
                    continue;
                }
            }
            out[k->length++] = c;
            who = c == ' ' && who;
            continue;
        }
        size_t j = i;
        int valued = 0, letters = 0;
        for (;;) {
            for (; j < n && is(s[j], IN_CHUNK); j++) { valued |= is(s[j], A_MARK) && s[j] != MORE_MASK; letters |= letter(s[j]); }
            size_t after = j;
            while (after < n && is(s[after], GLUE) && (s[after] != ':' || valued)) after++;
            if (after == j || after >= n || !is(s[after], IN_CHUNK)) break;
            j = after;
        }
        if (valued || who) put_value(k);
        else {
            size_t start = k->length;
            for (; i < j; i++) if (!is(s[i], A_MARK)) out[k->length++] = s[i];
            if (letters && k->word_count < MOST_WORDS) k->words[k->word_count++] = (Word){(u32)start, (u32)k->length};
            who = k->length - start == 4 && !memcmp(out + start, "user", 4);
            i = j;
            continue;
        }
        who = 0;
        i = j;
    }
    while (k->length && out[k->length - 1] == ' ') k->length--;
    return 0;
}

/* keyed(body) -> (key, [(start, end) of each of its words, ...]) */
static PyObject *keyed(PyObject *self, PyObject *args) {
    const char *data;
    Py_ssize_t n;
    Masks m = {.out = {.size = 1}, .numbers = {.size = sizeof(Masked)}};
    Key key = {.out = {.size = 1}};
    PyObject *words = NULL, *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y#", &data, &n)) return NULL;
    if (mask(&m, (const u8 *)data, (size_t)n, COARSE) || template_of(&key, &m)) PyErr_NoMemory();
    else words = PyList_New(0);
    for (u32 w = 0; words && w < key.word_count; w++) {
        PyObject *pair = Py_BuildValue("(II)", key.words[w].start, key.words[w].end);
        if (!pair || PyList_Append(words, pair)) Py_CLEAR(words);
        Py_XDECREF(pair);
    }
    if (words) result = Py_BuildValue("(y#O)", key.out.items ? (const char *)key.out.items : "", (Py_ssize_t)key.length, words);
    Py_XDECREF(words);
    free(m.out.items);
    free(m.numbers.items);
    free(key.out.items);
    return result;
}

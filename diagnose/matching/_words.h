/* Which of many words stand in a text: one pass, however many words there are. Included by _core.c.
 *
 * The words are in order of a hash of their first two bytes. At each place of the text only the words are compared that have
 * the same hash there.
 */
#define PAIRS 2048u       /* hashes of two bytes */
#define MOST_SOUGHT 8192u /* words of one index */

typedef struct { const u8 *bytes; u32 length, number; } Sought;
typedef struct {
    PyObject_HEAD
    PyObject *kept; /* the tuple with the bytes of the words */
    Sought *words;   /* in order of their hash */
    u32 count, first[PAIRS + 1];
} Words;

static inline u32 pair_of(const u8 *s) { return ((u32)s[0] * 67u + s[1]) & (PAIRS - 1); }

static int words_init(PyObject *self, PyObject *args, PyObject *kwargs) {
    Words *w = (Words *)self;
    PyObject *words;
    u32 first[PAIRS + 1] = {0}, next[PAIRS];
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &words)) return -1;
    if (w->kept) { PyErr_SetString(PyExc_TypeError, "it has its words already"); return -1; }
    Py_ssize_t count = PyTuple_Size(words);
    if (count > (Py_ssize_t)MOST_SOUGHT) { PyErr_SetString(PyExc_ValueError, "that is too many words"); return -1; }
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *word = PyTuple_GetItem(words, k);
        if (!PyBytes_Check(word) || PyBytes_Size(word) < 2 || PyBytes_Size(word) > (Py_ssize_t)LONGEST) {
            PyErr_SetString(PyExc_ValueError, "a word has two bytes or more");
            return -1;
        }
        first[pair_of((const u8 *)PyBytes_AsString(word)) + 1]++;
    }
    Sought *all = malloc((size_t)(count ? count : 1) * sizeof *all);
    if (!all) { PyErr_NoMemory(); return -1; }
    for (u32 k = 0; k < PAIRS; k++) first[k + 1] += first[k];
    memcpy(next, first, sizeof next);
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *word = PyTuple_GetItem(words, k);
        const u8 *bytes = (const u8 *)PyBytes_AsString(word);
        all[next[pair_of(bytes)]++] = (Sought){bytes, (u32)PyBytes_Size(word), (u32)k};
    }
    memcpy(w->first, first, sizeof first);
    w->words = all;
    w->count = (u32)count;
    w->kept = Py_NewRef(words);
    return 0;
}

/* found(text) -> the numbers of the words that stand in it, each once */
static PyObject *words_found(PyObject *self, PyObject *args) {
    const Words *w = (const Words *)self;
    const char *data;
    Py_ssize_t size;
    u64 seen[MOST_SOUGHT / 64];
    if (!PyArg_ParseTuple(args, "y#", &data, &size)) return NULL;
    memset(seen, 0, (w->count + 63) / 64 * sizeof *seen);
    const u8 *s = (const u8 *)data;
    PyObject *result = PyList_New(0);
    for (Py_ssize_t i = 0; result && i + 1 < size; i++) {
        u32 pair = pair_of(s + i);
        for (u32 k = w->first[pair]; k < w->first[pair + 1]; k++) {
            const Sought *word = w->words + k;
            u64 bit = (u64)1 << (word->number & 63), *bits = seen + (word->number >> 6);
            if (*bits & bit || word->length > (size_t)(size - i) || memcmp(s + i, word->bytes, word->length) != 0) continue;
            *bits |= bit;
            PyObject *number = PyLong_FromUnsignedLong(word->number);
            if (!number || PyList_Append(result, number)) Py_CLEAR(result);
            Py_XDECREF(number);
            if (!result) break;
        }
    }
    return result;
}

static void words_dealloc(PyObject *self) {
    Words *w = (Words *)self;
    PyTypeObject *type = Py_TYPE(self);
    free(w->words);
    Py_XDECREF(w->kept);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}
static PyMethodDef words_methods[] = {
    {"found", words_found, METH_VARARGS, "found(text): the numbers of the words that stand in it"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot words_slots[] = {
    {Py_tp_init, (void *)words_init}, {Py_tp_dealloc, (void *)words_dealloc},
    {Py_tp_new, (void *)PyType_GenericNew}, {Py_tp_methods, words_methods}, {0, NULL},
};
static PyType_Spec words_spec = {"diagnose.matching._core.Words", sizeof(Words), 0, Py_TPFLAGS_DEFAULT, words_slots};

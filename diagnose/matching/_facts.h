/* Lines that only say who is who leave the kept ones: see compression/facts.py, which this is the twin of. Included by _core.c. */

/* Whether a kept segment is a whole line of the block that began in it, and the only segment of its line */
static int whole_line(const Kept *all, size_t count, size_t k, const u8 *block, size_t size, u64 begun) {
    const Kept *one = all + k;
    if (one->line == begun || one->start > one->end || one->end >= size || block[one->end] != '\n') return 0;
    if (one->start && block[one->start - 1] != '\n') return 0;
    return !(k && one[-1].line == one->line) && !(k + 1 < count && one[1].line == one->line);
}

/* aside(kept, text, block, facts, begun, room) -> (kept, text, at most `room` texts that left, [(rule, lines that left), ...]) */
static PyObject *aside(PyObject *self, PyObject *args) {
    Py_buffer kept, text, block, facts;
    unsigned long long begun;
    Py_ssize_t room;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*Kn", &kept, &text, &block, &facts, &begun, &room)) return NULL;
    const Kept *all = kept.buf;
    size_t count = (size_t)kept.len / sizeof *all, left = 0, length = 0, rules = (size_t)facts.len;
    PyObject *result = NULL, *words = PyList_New(0), *lines = PyList_New(0);
    Kept *records = malloc((size_t)kept.len + 1);
    char *out = malloc((size_t)text.len + 1);
    u32 *counts = calloc(rules + 1, sizeof *counts);
    if (!records || !out || !counts) { PyErr_NoMemory(); goto done; }
    if (!words || !lines) goto done;
    for (size_t k = 0; k < count; k++) {
        const Kept *one = all + k;
        const char *its = (const char *)text.buf + one->offset;
        if ((size_t)one->offset + one->length >= (size_t)text.len) {
            PyErr_SetString(PyExc_IndexError, "a record is outside of the text");
            goto done;
        }
        size_t rule = one->rule < 0 ? 0 : (size_t)one->rule + 1;
        if (rule && rule <= rules && ((const u8 *)facts.buf)[rule - 1]
            && whole_line(all, count, k, block.buf, (size_t)block.len, begun)) {
            counts[rule - 1]++;
            if (PyList_Size(words) >= room) continue;
            PyObject *word = PyBytes_FromStringAndSize(its, (Py_ssize_t)one->length);
            int failed = !word || PyList_Append(words, word);
            Py_XDECREF(word);
            if (failed) goto done;
            continue;
        }
        if (length + one->length >= (size_t)text.len) { /* only records that overlap need more room */
            PyErr_SetString(PyExc_IndexError, "records overlap");
            goto done;
        }
        records[left] = *one;
        records[left++].offset = (u32)length;
        memcpy(out + length, its, (size_t)one->length + 1);
        length += (size_t)one->length + 1;
    }
    for (size_t rule = 0; rule < rules; rule++) {
        if (!counts[rule]) continue;
        PyObject *row = Py_BuildValue("(nI)", (Py_ssize_t)rule, counts[rule]);
        int failed = !row || PyList_Append(lines, row);
        Py_XDECREF(row);
        if (failed) goto done;
    }
    result = Py_BuildValue(
        "(y#y#OO)", (const char *)records, (Py_ssize_t)(left * sizeof *records), (const char *)out, (Py_ssize_t)length, words, lines
    );
done:
    Py_XDECREF(words);
    Py_XDECREF(lines);
    free(records);
    free(out);
    free(counts);
    PyBuffer_Release(&kept);
    PyBuffer_Release(&text);
    PyBuffer_Release(&block);
    PyBuffer_Release(&facts);
    return result;
}

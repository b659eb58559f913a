/* Two columns of one series become one: see Column.merged in series.py, which this is the twin of. Included by _core.c. */

enum { COLUMNS = 5, STARTS = 3 }; /* steps, values, lines, starts, ends */

/* merged(mine, others) -> five bytes; each is a tuple of five buffers, which are in order of their starts */
static PyObject *merged(PyObject *self, PyObject *args) {
    static const size_t widths[COLUMNS] = {8, 8, 8, 4, 4};
    PyObject *sides[2], *result = NULL;
    Py_buffer views[2][COLUMNS];
    size_t sizes[2] = {0, 0};
    int held[2] = {0, 0};
    char *out[COLUMNS];
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &sides[0], &PyTuple_Type, &sides[1])) return NULL;
    for (int side = 0; side < 2; side++)
        for (int c = COLUMNS - 1; c >= 0; c--) { /* the last first: it says how many there are */
            PyObject *source = PyTuple_GetItem(sides[side], c);
            if (!source || numbers_of(source, &views[side][c], widths[c], (Py_ssize_t)sizes[side])) goto done;
            held[side]++;
            if (c == COLUMNS - 1) sizes[side] = (size_t)views[side][c].len / widths[c];
        }
    size_t total = sizes[0] + sizes[1], at[2] = {0, 0};
    result = PyTuple_New(COLUMNS);
    for (int c = 0; result && c < COLUMNS; c++) {
        PyObject *column = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(total * widths[c]));
        if (!column || PyTuple_SetItem(result, c, column)) { Py_CLEAR(result); break; }
        out[c] = PyBytes_AsString(column);
    }
    for (size_t k = 0; result && k < total; k++) {
        u32 mine = 0, others = 0;
        if (at[0] < sizes[0]) memcpy(&mine, (const char *)views[0][STARTS].buf + at[0] * 4, 4);
        if (at[1] < sizes[1]) memcpy(&others, (const char *)views[1][STARTS].buf + at[1] * 4, 4);
        int side = at[0] == sizes[0] || (at[1] < sizes[1] && others < mine);
        for (int c = 0; c < COLUMNS; c++)
            memcpy(out[c] + k * widths[c], (const char *)views[side][c].buf + at[side] * widths[c], widths[c]);
        at[side]++;
    }
done:
    for (int side = 0; side < 2; side++)
        for (int c = COLUMNS - 1; c >= COLUMNS - held[side]; c--) PyBuffer_Release(&views[side][c]);
    return result;
}

/* The native twin of evidence.normal: a text without what changes from run to run. For ASCII only. Included by _core.c. */
enum { N_WORD = 1, N_DIGIT = 2, N_HEX = 4, N_PATH = 8, N_SPACE = 16, N_SMALL = 32, N_LETTER = 64, N_DASH = 128 };
static u8 normals[128];

static void set_up_normals(void) {
    for (int c = '0'; c <= '9'; c++) normals[c] = N_WORD | N_DIGIT | N_HEX | N_PATH;
    for (int c = 'a'; c <= 'z'; c++) {
        normals[c] = N_WORD | N_PATH | N_LETTER | N_SMALL | (c <= 'f' ? N_HEX : 0);
        normals[c - 32] = N_WORD | N_PATH | N_LETTER | (c <= 'f' ? N_HEX : 0);
    }
    normals['_'] = N_WORD | N_PATH;
    normals['-'] = N_PATH | N_DASH;
    for (const char *b = ".+@="; *b; b++) normals[(u8)*b] |= N_PATH;
    for (const char *b = " \t\n\v\f\r\x1c\x1d\x1e\x1f"; *b; b++) normals[(u8)*b] |= N_SPACE;
}

/* Whether the byte at `at` is of one of these; behind the end, nothing is. */
static inline int of_kind(const u8 *s, size_t n, size_t at, u8 kind) { return at < n && normals[s[at]] & kind; }

static inline size_t run_of(const u8 *s, size_t n, size_t at, u8 kind) {
    while (of_kind(s, n, at, kind)) at++;
    return at;
}

/* Where the path that begins at `at` ends, and where its last name begins; 0: none begins there. */
static size_t folders_at(const u8 *s, size_t n, size_t at, size_t *name, size_t *name_end) {
    if (of_kind(s, n, at, N_LETTER) && at + 2 < n && s[at + 1] == ':') at += 2;
    size_t end = 0;
    while (at < n && s[at] == '/' && of_kind(s, n, at + 1, N_PATH)) {
        *name = at + 1;
        at = *name_end = end = run_of(s, n, at + 1, N_PATH);
    }
    return end && end < n && s[end] == '/' ? end + 1 : end;
}

/* Where the name of a host or another name with a number in it ends, that begins at `at`; 0: none begins there. */
static size_t host_at(const u8 *s, size_t n, size_t at) {
    size_t end = run_of(s, n, at + 1, N_WORD | N_DASH), digit = end;
    while (digit > at + 1 && !(normals[s[digit - 1]] & N_DIGIT)) digit--;
    if (digit == at + 1) return 0;
    while (end < n && s[end] == '.' && of_kind(s, n, end + 1, N_WORD | N_DASH)) end = run_of(s, n, end + 1, N_WORD | N_DASH);
    while (!(normals[s[end - 1]] & N_WORD)) end--; /* it ends with a letter or a number */
    return end;
}

/* The same for an address of four numbers. */
static size_t address_at(const u8 *s, size_t n, size_t at) {
    for (int k = 0; k < 4; k++) {
        if (k && !(at < n && s[at] == '.')) return 0;
        size_t end = run_of(s, n, at + (k > 0), N_DIGIT);
        if (end == at + (k > 0)) return 0;
        at = end;
    }
    return of_kind(s, n, at, N_WORD) ? 0 : at;
}

/* The same for a number. */
static size_t number_at(const u8 *s, size_t n, size_t at, int begins) {
    if (s[at] == '0' && at + 1 < n && s[at + 1] == 'x' && of_kind(s, n, at + 2, N_HEX)) return run_of(s, n, at + 2, N_HEX);
    if (begins) {
        size_t end = run_of(s, n, at, N_HEX);
        if (end - at >= 8 && !of_kind(s, n, end, N_WORD)) return end;
    }
    size_t end = run_of(s, n, at, N_DIGIT);
    return end > at ? end : 0;
}

/* Paths -> their last names. `out` has room for what is read. */
static size_t without_folders(const u8 *s, size_t n, u8 *out) {
    size_t o = 0;
    for (size_t at = 0; at < n;) {
        size_t name = 0, name_end = 0, end = 0;
        if (s[at] == '/' || (at + 2 < n && s[at + 1] == ':' && s[at + 2] == '/')) end = folders_at(s, n, at, &name, &name_end);
        if (!end) { out[o++] = s[at++]; continue; }
        out[o++] = '/';
        memcpy(out + o, s + name, name_end - name);
        o += name_end - name;
        at = end;
    }
    return o;
}

/* Numbers and hosts -> '#', any space -> one blank */
static size_t without_numbers(const u8 *s, size_t n, u8 *out) {
    size_t o = 0;
    for (size_t at = 0; at < n;) {
        u8 kind = normals[s[at]];
        if (kind & N_SPACE) {
            if (o && out[o - 1] != ' ') out[o++] = ' ';
            at++;
            continue;
        }
        int begins = kind & N_WORD && !(at && normals[s[at - 1]] & N_WORD);
        size_t end = begins && kind & N_SMALL ? host_at(s, n, at) : begins && kind & N_DIGIT ? address_at(s, n, at) : 0;
        if (!end && kind & N_HEX) end = number_at(s, n, at, begins);
        if (end) { out[o++] = '#'; at = end; } else out[o++] = s[at++];
    }
    return o && out[o - 1] == ' ' ? o - 1 : o;
}

/* normal(text) -> text; None where it is not ASCII */
static PyObject *normal(PyObject *self, PyObject *text) {
    Py_ssize_t n;
    const char *data = PyUnicode_AsUTF8AndSize(text, &n);
    (void)self;
    if (!data) return NULL;
    for (Py_ssize_t k = 0; k < n; k++) if (data[k] & 0x80) Py_RETURN_NONE;
    u8 *room = malloc(2 * (size_t)n + 2);
    if (!room) return PyErr_NoMemory();
    size_t length = without_folders((const u8 *)data, (size_t)n, room);
    u8 *out = room + n + 1;
    length = without_numbers(room, length, out);
    PyObject *result = PyUnicode_FromStringAndSize((const char *)out, (Py_ssize_t)length);
    free(room);
    return result;
}

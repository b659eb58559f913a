/* The numbers of lines that no rule knows, read while they fold.
 *
 * Python is asked once for each template which of its numbers has a name (see compression/numbers.py); its plan then reads every
 * line of it. The numbers of a form (the same names in the same order) count from its third line on, or its first where that is
 * beyond doubt; those before wait. A step that begins anew with each epoch is counted on. Included by _core.c.
 */
#define MOST_PLANS 16384u
#define MOST_READERS (MOST_PLANS * 4u)
#define MOST_EARLY 65536u
#define MOST_NAMES 512u /* half of it is filled at most */
#define NEAR 256u /* lines for which a step, or a header, holds */
#define BESIDE 32u /* bytes before a number, and behind it, in which its name or its unit stands */
#define NO_SLOT 0xffffu
#define NO_PLAN 1u /* a plan's number is its place and 2; 0: not asked yet */

enum { A_VALUE, A_STEP, AN_EPOCH, A_TOTAL };
typedef struct { uint16_t slot, series, guard; u8 kind, unused; double scale, constant, guard_value; } Reader;
typedef struct { u32 form, first, count, header; } Plan;
typedef struct { u64 key; u32 plan, unused; } Known; /* which plan a template has */
typedef struct { double base, step, epoch, last, value; u64 lines; u32 needed; uint16_t rises, moves; } Form;
typedef struct { double step, value; u64 line; u32 series, form; } Early;
typedef struct { double step; u64 step_line, header_line; u32 header, unused; } ReadingState;
typedef struct {
    ReadingState state;
    Vector plans, readers, known, forms, early; /* known is a table, see entry_of */
    size_t known_count;
    Vector numbers; /* what this block brought */
    u64 names[MOST_NAMES]; /* a table of words that names of numbers have; no part of the state */
} Readings;

static u64 spelt(u64 key, u8 c) { return mix(key ^ (c | 32), 0x9e3779b97f4a7c15ull); }

static int is_name(const Readings *r, u64 key) {
    u32 at = (u32)key & (MOST_NAMES - 1);
    while (r->names[at] && r->names[at] != key) at = (at + 1) & (MOST_NAMES - 1);
    return r->names[at] != 0;
}

/* Take the names, words in lower case with anything between; -1 where they are too many. */
static int take_names(Readings *r, const u8 *s, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n;) {
        if (!letter(s[i])) { i++; continue; }
        u64 key = 0;
        while (i < n && letter(s[i])) key = spelt(key, s[i++]);
        u32 at = (u32)key & (MOST_NAMES - 1);
        while (r->names[at] && r->names[at] != key) at = (at + 1) & (MOST_NAMES - 1);
        if (!r->names[at] && 2 * ++count > MOST_NAMES) return -1;
        r->names[at] = key;
    }
    return 0;
}

/* How many of the words in s are of `names`: runs of letters, what begins with a capital inside of one, and "per" where /s says
 * so. Who finds none beside numbers need not ask. */
static u32 names_in(const Readings *r, const u8 *s, size_t n) {
    u32 found = 0;
    for (size_t i = 0; i < n;) {
        if (s[i] == '/') {
            while (++i < n && blank(s[i]));
            if (i < n && lower(s[i]) == 's') found += is_name(r, spelt(spelt(spelt(0, 'p'), 'e'), 'r'));
            continue;
        }
        if (!letter(s[i])) { i++; continue; }
        u64 key = 0;
        u8 before = 'A';
        for (; i < n && letter(s[i]) && (before < 'a' || s[i] >= 'a'); i++) { before = s[i]; key = spelt(key, before); }
        found += is_name(r, key);
    }
    return found;
}

static int is_nan(const u8 *s, size_t n) {
    return n == 3 && ((lower(s[0]) == 'n' && lower(s[1]) == 'a') || (lower(s[0]) == 'i' && lower(s[1]) == 'n'));
}

/* How many names of numbers stand before numbers, or are units behind them; of all words where no number stands, or one that is nan. */
static u32 names_beside(const Readings *r, const Masks *m) {
    const u8 *out = m->out.items;
    int whole = !m->slots;
    for (u32 w = 0; w < m->word_count && !whole; w++) whole = is_nan(out + m->words[w].start, m->words[w].end - m->words[w].start);
    if (whole) return names_in(r, out, m->length);
    u32 found = 0;
    for (size_t i = 0, from = 0; i < m->length && !found; i++) {
        if (out[i] != NUMBER_MASK) continue;
        if (i - from > BESIDE) from = i - BESIDE;
        found = names_in(r, out + from, i - from);
        from = i + 1;
        size_t end = from;
        while (end < m->length && end - from < BESIDE && (letter(out[end]) || out[end] == '/' || out[end] == ' ')) end++;
        if (memchr(out + from, '/', end - from)) found += names_in(r, out + from, end - from);
    }
    return found;
}

static int is_row(const Masks *m) { /* numbers only, as it seems */
    const u8 *out = m->out.items;
    size_t i = 0;
    while (i < m->length && (out[i] == ' ' || out[i] == '|')) i++;
    return m->slots > 2 && i < m->length && out[i] == NUMBER_MASK;
}

/* plan(masked, [(value, slot), ...], body, header) -> (form, needed, rises, readers, header) */
static int ask_plan(Readings *r, const Masks *m, const u8 *body, size_t n, u32 header, PyObject *plan, Plan *made) {
    PyObject *numbers = PyList_New(0), *answer = NULL;
    const Masked *all = m->numbers.items;
    for (size_t k = 0; numbers && k < m->numbers.count; k++) {
        PyObject *pair = Py_BuildValue("(dI)", all[k].value, all[k].slot);
        if (!pair || PyList_Append(numbers, pair)) Py_CLEAR(numbers);
        Py_XDECREF(pair);
    }
    if (numbers) answer = PyObject_CallFunction(plan, "y#Oy#I", (const char *)m->out.items, (Py_ssize_t)m->length, numbers,
                                                (const char *)body, (Py_ssize_t)n, header);
    Py_XDECREF(numbers);
    unsigned needed;
    int rises, fine = 0;
    const char *readers;
    Py_ssize_t length;
    if (answer && PyArg_ParseTuple(answer, "IIpy#I", &made->form, &needed, &rises, &readers, &length, &made->header)) {
        size_t count = (size_t)length / sizeof(Reader);
        Reader *room = grow(&r->readers, count + 1);
        Form *forms = made->form > r->forms.count ? grow(&r->forms, made->form - r->forms.count) : r->forms.items;
        if (made->form > MOST_PLANS) PyErr_SetString(PyExc_ValueError, "that is no form");
        else if (room && (forms || !made->form)) {
            if (made->form > r->forms.count) {
                memset(forms, 0, (made->form - r->forms.count) * sizeof *forms);
                r->forms.count = made->form;
            }
            if (made->form) {
                Form *form = (Form *)r->forms.items + (made->form - 1);
                if (!form->needed) *form = (Form){NAN, NAN, NAN, NAN, NAN, 0, needed ? needed : 1, (uint16_t)rises, 0};
            }
            memcpy(room, readers, count * sizeof *room);
            made->first = (u32)r->readers.count;
            made->count = (u32)count;
            r->readers.count += count;
            fine = 1;
        }
    }
    Py_XDECREF(answer);
    return fine ? 0 : -1;
}

/* The number of the plan of a template, 0 where none can be had; UINT32_MAX for an error. */
static u32 plan_of(Readings *r, u64 key, const Masks *m, const u8 *body, size_t n, u64 line, PyObject *plan, PyThreadState **thread) {
    u32 header = 0;
    Known *known = entry_of(&r->known, &r->known_count, key | 1, MOST_PLANS, 0);
    if (known) return known->plan;
    u32 found = names_beside(r, m);
    if (!found && is_row(m)) { /* what it is depends on what stands above it */
        if (!r->state.header || line - r->state.header_line > NEAR) return 0;
        header = r->state.header;
        r->state.header_line = line;
        key = mix(key, 0x9e3779b97f4a7c15ull + header);
    } else if (found < (m->slots ? 1u : 2u)) return NO_PLAN;
    known = entry_of(&r->known, &r->known_count, key | 1, MOST_PLANS, 1);
    if (!known || known->plan) return known ? known->plan : NO_PLAN;
    known->plan = NO_PLAN;
    if (r->readers.count >= MOST_READERS || r->plans.count >= MOST_PLANS) return NO_PLAN;
    Plan made = {0};
    PyEval_RestoreThread(*thread);
    int status = ask_plan(r, m, body, n, header, plan, &made);
    *thread = PyEval_SaveThread();
    if (status) return UINT32_MAX;
    if (!made.form && !made.header) return NO_PLAN;
    Plan *room = grow(&r->plans, 1);
    if (!room) return UINT32_MAX;
    *room = made;
    return known->plan = (u32)r->plans.count++ + 2;
}

/* Plans outlive the folds of their lines, because Python made them. */
static int many_plans(const Readings *r) {
    return r->known_count > MOST_PLANS / 2 || r->plans.count > MOST_PLANS / 2 || r->readers.count > MOST_READERS / 2;
}

static void forget_plans(Readings *r) {
    r->plans.count = r->readers.count = r->known_count = 0;
    if (r->known.items) memset(r->known.items, 0, r->known.count * sizeof(Known));
}

/* The value of a reader in a line, NAN where its name is another one here */
static int value_of_reader(const Reader *reader, const Masks *m, double *value) {
    const Masked *numbers = m->numbers.items;
    double guard = NAN;
    *value = reader->constant;
    int found = reader->slot == NO_SLOT;
    for (size_t k = 0; k < m->numbers.count; k++) {
        if (numbers[k].slot == reader->guard) guard = numbers[k].value;
        if (numbers[k].slot != reader->slot || found) continue;
        *value = numbers[k].value;
        found = 1;
    }
    *value *= reader->scale;
    return found && (reader->guard == NO_SLOT || guard == reader->guard_value);
}

/* A step as one that is counted on over epochs. */
static double counted_on(Form *form, double step, double epoch, double total) {
    if (!(form->base == form->base)) form->base = 0;
    if (epoch == epoch && step < form->step) {
        if (epoch > form->epoch) form->base += total == total ? total : form->step;
        else form->base = 0; /* begun anew */
    }
    form->step = step;
    form->epoch = epoch;
    return form->base + step;
}

static int put_reading(Readings *r, double step, double value, u64 line, u32 start, u32 end, u32 series) {
    Number *room = grow(&r->numbers, 1);
    if (!room) return -1;
    *room = (Number){step, value, line, start, end, series, 0};
    r->numbers.count++;
    return 0;
}

/* What waited for the form to be regular goes out, or is forgotten. */
static int let_early(Readings *r, u32 form, int out) {
    Early *all = r->early.items;
    size_t left = 0;
    for (size_t k = 0; k < r->early.count; k++) {
        if (all[k].form != form) all[left++] = all[k];
        else if (out && put_reading(r, all[k].step, all[k].value, all[k].line, 0, 0, all[k].series)) return -1;
    }
    r->early.count = left;
    return 0;
}

/* The numbers of one line of a template; -1 for no memory. */
static int read_line(Readings *r, u32 number, const Masks *m, const Kept *record) {
    const Plan *plan = (const Plan *)r->plans.items + (number - 2);
    if (plan->header) { r->state.header = plan->header; r->state.header_line = record->line; }
    if (!plan->form) return 0;
    const Reader *readers = (const Reader *)r->readers.items + plan->first;
    Form *form = (Form *)r->forms.items + (plan->form - 1);
    double kinds[4] = {NAN, NAN, NAN, NAN}, value;
    for (u32 k = 0; k < plan->count; k++)
        if (value_of_reader(&readers[k], m, &value) && kinds[readers[k].kind] != kinds[readers[k].kind]) kinds[readers[k].kind] = value;
    double counts = kinds[A_STEP] == kinds[A_STEP] ? kinds[A_STEP] : kinds[AN_EPOCH];
    if (form->rises && form->lines < form->needed && !(counts > form->last)) {
        form->lines = 0;
        if (let_early(r, plan->form, 0)) return -1;
    }
    form->last = counts;
    form->moves |= counts == counts || (form->lines && kinds[A_VALUE] != form->value); /* settings are told again and again */
    form->value = kinds[A_VALUE];
    int waits = form->lines + 1 >= form->needed && !form->moves;
    if (!waits) form->lines++;
    double step = record->line - r->state.step_line <= NEAR ? r->state.step : NAN;
    if (kinds[A_STEP] == kinds[A_STEP]) {
        step = counted_on(form, kinds[A_STEP], kinds[AN_EPOCH], kinds[A_TOTAL]);
        r->state.step = step;
        r->state.step_line = record->line;
    }
    if (form->lines == form->needed && let_early(r, plan->form, 1)) return -1;
    for (u32 k = 0; k < plan->count; k++) {
        if (readers[k].series == NO_SLOT || !value_of_reader(&readers[k], m, &value)) continue;
        if (readers[k].kind == A_STEP) value = step;
        if (form->lines >= form->needed) {
            if (put_reading(r, step, value, record->line, record->start, record->end, readers[k].series)) return -1;
            continue;
        }
        if (waits) continue;
        if (r->early.count >= MOST_EARLY) r->early.count = 0;
        Early *room = grow(&r->early, 1);
        if (!room) return -1;
        *room = (Early){step, value, record->line, readers[k].series, plan->form};
        r->early.count++;
    }
    return 0;
}

/* Whether what was read back can be what was written. */
static int sound_readings(const Readings *r) {
    size_t known = 0;
    for (size_t k = 0; k < r->known.count; k++) {
        const Known *one = (const Known *)r->known.items + k;
        known += one->key != 0;
        if (one->plan > NO_PLAN && one->plan - 2 >= r->plans.count) return 0;
    }
    if (r->known_count != known || (known && known * 2 > r->known.count)) return 0;
    for (size_t k = 0; k < r->plans.count; k++) {
        const Plan *plan = (const Plan *)r->plans.items + k;
        if ((u64)plan->first + plan->count > r->readers.count || plan->form > r->forms.count) return 0;
    }
    for (size_t k = 0; k < r->readers.count; k++) if (((const Reader *)r->readers.items)[k].kind > A_TOTAL) return 0;
    for (size_t k = 0; k < r->early.count; k++) {
        u32 form = ((const Early *)r->early.items)[k].form;
        if (!form || form > r->forms.count) return 0;
    }
    return 1;
}

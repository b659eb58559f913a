/* What repeats in one source: kept segments in; those that repeat what was kept before are taken out and counted.
 *
 * A fold is all lines of one masked text (see _masks.h). Its first lines stay. From then on a line stays only when it says
 * something new: a number leaves its range, a counter stands or falls back, another rank or host says it for the first time, it
 * comes again after a long silence. A line that sounds like a failure folds with its own copies only. What stays and is very long
 * loses the middle of its lists (_lists.h). Nothing depends on how the bytes were cut, and the state is one string of bytes.
 * Included by _core.c.
 */
#define MOST_FOLDS 4096u
#define MOST_RANGES (MOST_FOLDS * 16u)
#define MOST_PLACES 16384u /* places of words that may vary */
#define MOST_WHO 32768u
#define MOST_HEARD 16384u
#define SAMPLE 160u
#define EVIDENCE 8u /* lines after which the range of a number is known */
#define FAR 10.0    /* a number leaps when it leaves its range by so many widths of it */
#define WINDOW 64u      /* values */
#define FAR_OF_LATE 3.0 /* a number leaps, too, when it leaves the range of these by so many widths of it */
#define STOOD 256u  /* a number that stood for so many lines is news when it moves */
#define VALUES 10u
#define RARE 6u         /* a value of a word that came more often is one of a few, no name */
#define SILENCE 1000u   /* lines */
#define MOST_GLUED 64u
#define OPEN_BITS 65536u
#define LATE 100u      /* lines */
#define ALTERNATION 20u /* a place of more words than that is no choice of a few, however often they come */
#define GUARDED 20u     /* indented lines behind a failure that stay, */
#define SHORT 60u       /* up to this line copies stay as other lines do: a log of one page is read as a whole */
#define OFTEN 64u       /* up to so many failures of one rule or in the same words */
#define MOST_RULES 65536u
#define IN_TRACEBACK 60u
#define LONGER 4u       /* a body may be so many times longer than those before */
#define IN_DUMP 400u
#define NO_SAMPLE UINT32_MAX
#define MOST_CHAINS 16384u /* beginnings of tracebacks */
#define MOST_WAITING 256u  /* lines of one, */
#define MOST_WAITING_BYTES (256u << 10)
#define HEAD_LINES 12u /* a source begins with so many telling lines at most, */
#define HEAD_SPAN 60u  /* in so many lines; none of them stood in so many lines before a new run */
#define HEAD_WINDOW 120u /* lines in which they come again */
#define HEAD_SOON 8u   /* or in so few, if a failure stands there */
#define HEAD_LEAST 3u    /* fewer than that tell of a new run if they come word by word */
#define LEAST_ID 1e3   /* greater numbers may be those of processes and jobs */
#define MOST_RUNS 64u    /* the latest */

typedef struct {
    u64 key, count, first, last, silence, folded, behind, exact; /* exact: the first line as it stands; behind: new lines that folded because they always follow it */
    u32 ranges, slots, sample, plan, bodies, longest;     /* how often new lines followed it, and how many at most */
    u32 begins, words;                                    /* its place among the first lines, + 1; of its second line, but for ids */
} Fold;
typedef struct {
    double least, most, last;
    double before_least, before_most, now_least, now_most; /* of the window before, and of this one */
    u64 seen;
    u32 run, longest, changes, rising, in_window, unused;
} Range;
typedef struct { u64 key; u32 folds[VALUES], count, open, distinct, unused; } Place;
typedef struct { u32 length; u8 text[SAMPLE]; } Sample;
typedef struct { u64 key, count; } Chain; /* the lines of a traceback up to one of them */
typedef struct { u64 key, words, who; } Begun; /* one of the first lines of the source: its fold (0: it is none of them), its words, and who said it */
/* What else the next line depends on. Most numbers are lines of the source; `first lines` are those that a program says first. */
typedef struct {
    u64 seed, line, held_line, head_who, chain, chain_line;
    u64 begun, begun_last; /* the first of the first lines; the last of them that came, also when they come again */
    u64 opened;            /* where they may be coming again; 0: they are not */
    u64 run_line, length;  /* where the latest run began; how many lines the one before it had, 0 if something failed in it */
    u64 failure;           /* the last line that sounds like a failure or that a failure rule knows */
    u64 told_run;          /* at this line at the latest another run has begun, as the caller knows; 0: none is told */
    u32 keep, guard, dump, head, body; /* head: fold + 1 of the last regular line; body: new lines since */
    u32 run, counted;      /* runs that were found behind the first one; how many of them still count */
    u32 firsts;            /* how many first lines there are */
    u32 opened_at, next, seen, same; /* of those that come again: the place of the first, the next place, how many came, and how many of them word by word */
    u8 remaining, folded, held, held_counted, in_traceback;
    u8 failed;  /* a failure rule knew a line since the last of the first lines, */
    u8 ailing;  /* since this run began, */
    u8 ailed;   /* and ever in this source */
    u8 regular; /* the first lines come again and again, as those of an epoch do: that alone begins no run */
    u8 framed;  /* the line before names the file of a frame: this one is its code */
    u8 unused[2];
} FoldState;

typedef struct {
    PyObject_HEAD
    FoldState state;
    int busy;
    Vector folds, ranges, samples, places, who, held, chains, waiting, waiting_text, first, runs, told; /* places and who are tables, open addressing; key 0 is free */
    u32 *slots, slot_mask; /* fold + 1 by key */
    Vector heard; /* what may sound like a failure, and whether it does; can be asked again, and is no part of the state */
    size_t place_count, who_count, chain_count, heard_count;
    u64 open[OPEN_BITS / 64]; /* which places may be open, by their keys: few are, and most lines have none */
    Masks masks, loud; /* of the line; of one that sounds like a failure, for its numbers */
    Readings readings;
    Vector text, kept, scratch;
} Folds;

static u64 hash_masked(const Folds *f, Masks *m) {
    memset((u8 *)m->out.items + m->length, 0, 16);
    u64 h = hash_of(m->out.items, m->length, f->state.seed);
    return h ? h : 1;
}

static Fold *fold_at(const Folds *f, u64 key) {
    for (u32 at = (u32)key & f->slot_mask; f->slots[at]; at = (at + 1) & f->slot_mask) {
        Fold *fold = (Fold *)f->folds.items + (f->slots[at] - 1);
        if (fold->key == key) return fold;
    }
    return NULL;
}

static int index_folds(Folds *f, u32 mask) {
    u32 *slots = calloc((size_t)mask + 1, sizeof *slots);
    if (!slots) return -1;
    const Fold *folds = f->folds.items;
    for (u32 k = 0; k < f->folds.count; k++) {
        u32 at = (u32)folds[k].key & mask;
        while (slots[at]) at = (at + 1) & mask;
        slots[at] = k + 1;
    }
    free(f->slots);
    f->slots = slots;
    f->slot_mask = mask;
    return 0;
}

/* All is forgotten when there is too much: what comes again is kept again. */
static void forget_folds(Folds *f) {
    f->folds.count = f->ranges.count = f->samples.count = 0;
    memset(f->slots, 0, ((size_t)f->slot_mask + 1) * sizeof *f->slots);
    if (f->places.items) memset(f->places.items, 0, f->places.count * sizeof(Place));
    if (f->who.items) memset(f->who.items, 0, f->who.count * sizeof(u64));
    memset(f->open, 0, sizeof f->open);
    f->place_count = f->who_count = 0;
    f->state.head = 0; /* the first lines stay known */
    if (many_plans(&f->readings)) forget_plans(&f->readings);
}

static Fold *new_fold(Folds *f, u64 key, u32 slots, u64 line) {
    Range *ranges = grow(&f->ranges, slots + 1);
    Fold *fold = grow(&f->folds, 1);
    if (!ranges || !fold) return NULL;
    memset(ranges, 0, slots * sizeof *ranges);
    *fold = (Fold){.key = key, .first = line, .last = line, .ranges = (u32)f->ranges.count, .slots = slots, .sample = NO_SAMPLE};
    const Begun *first = f->first.items;
    for (u32 k = 0; k < f->first.count; k++) if (first[k].key == key) fold->begins = k + 1;
    f->ranges.count += slots;
    f->folds.count++;
    if (f->folds.count * 2 > f->slot_mask) return index_folds(f, f->slot_mask * 2 + 1) ? NULL : (Fold *)f->folds.items + f->folds.count - 1;
    u32 at = (u32)key & f->slot_mask;
    while (f->slots[at]) at = (at + 1) & f->slot_mask;
    f->slots[at] = (u32)f->folds.count;
    return fold;
}

/* Who speaks, as far as the prefixes tell: their hash without times; 0 where none does */
static u64 who_speaks(const Folds *f, const u8 *s, size_t n) {
    u64 h = 0;
    for (size_t at = 0, k = 0; k < 4 && at < n; k++) {
        size_t found = one_prefix(s + at, n - at);
        if (!found) break;
        if (!time_prefix(s + at, n - at)) for (size_t i = at; i < at + found; i++) h = mix(h ^ s[i] ^ f->state.seed, 0x9e3779b97f4a7c15ull);
        at += found;
    }
    return h;
}

/* Whether a value is far from what came lately; the windows go on. */
static int leaps_of_late(Range *r, double v) {
    int leaps = 0;
    if (r->seen > WINDOW) {
        double least = r->before_least < r->now_least ? r->before_least : r->now_least;
        double most = r->before_most > r->now_most ? r->before_most : r->now_most, wide = most - least;
        leaps = wide > 0 && (v > most + FAR_OF_LATE * wide || v < least - FAR_OF_LATE * wide);
    }
    if (v < r->now_least) r->now_least = v;
    if (v > r->now_most) r->now_most = v;
    if (++r->in_window == WINDOW) {
        r->before_least = r->now_least;
        r->before_most = r->now_most;
        r->now_least = INFINITY;
        r->now_most = -INFINITY;
        r->in_window = 0;
    }
    return leaps;
}

/* The numbers of a line go into the ranges of its fold; whether one of them says something new. */
static int numbers_tell(Folds *f, const Fold *fold, const Masks *m) {
    Range *ranges = (Range *)f->ranges.items + fold->ranges;
    const Masked *numbers = m->numbers.items;
    int tells = 0;
    for (size_t k = 0; k < m->numbers.count; k++) {
        Range *r = &ranges[numbers[k].slot];
        double v = numbers[k].value;
        if (!isfinite(v)) { tells = 1; continue; }
        if (!r->seen++) {
            *r = (Range){.least = v, .most = v, .last = v, .now_least = v, .now_most = v, .seen = 1, .run = 1, .rising = 1, .in_window = 1};
            continue;
        }
        int known = r->seen > EVIDENCE, moved = v != r->last;
        double wide = r->most - r->least;
        if (wide == 0) tells |= moved; /* what was the same in all lines: none with another value may be folded */
        else tells |= v > r->most + FAR * wide || v < r->least - FAR * wide || (known && v == 0 && (r->least > 0 || r->most < 0));
        if (known) tells |= (v < r->last && r->rising && r->changes >= EVIDENCE) || (moved && r->run >= STOOD);
        tells |= leaps_of_late(r, v);
        if (v < r->last) r->rising = 0;
        if (moved) {
            if (r->run > r->longest) r->longest = r->run;
            r->run = 1;
            r->changes += r->changes < UINT32_MAX;
        } else {
            u32 usual = r->longest <= 1 ? 2 : 4 * r->longest > EVIDENCE ? 4 * r->longest : EVIDENCE;
            r->run += r->run < UINT32_MAX / 8;
            if (r->changes >= EVIDENCE && r->run > usual) { tells = 1; r->longest = r->run; } /* it moved, and stands */
        }
        if (v < r->least) r->least = v;
        if (v > r->most) r->most = v;
        r->last = v;
    }
    return tells;
}

static int same_word(const Masks *m, const Word *a, const Word *b) {
    const u8 *out = m->out.items;
    return a->end - a->start == b->end - b->start && memcmp(out + a->start, out + b->start, a->end - a->start) == 0;
}

/* The masked text with word `which` left out, wherever it stands, into `to`; returns its length. */
static size_t without(const Masks *m, u32 which, u8 *to) {
    const u8 *out = m->out.items;
    size_t from = 0, length = 0;
    for (u32 w = which; w < m->word_count; w++) {
        if (w != which && !same_word(m, &m->words[w], &m->words[which])) continue;
        memcpy(to + length, out + from, m->words[w].start - from);
        length += m->words[w].start - from;
        to[length++] = WORD_MASK;
        from = m->words[w].end;
    }
    memcpy(to + length, out + from, m->length - from);
    length += m->length - from;
    memset(to + length, 0, 16);
    return length;
}

/* What the key of a text is made of: each of its words at its place, and all that stands between them. A key without a word is
 * then a difference, and the text need not be hashed again for each word. */
typedef struct { u64 all, words[MOST_WORDS]; } Pieces;

static u64 hash_piece(const u8 *s, size_t n, u64 seed) { /* 8 bytes more than n can be read */
    u64 h = seed ^ (n * 0x9e3779b97f4a7c15ull), v;
    for (; n > 8; s += 8, n -= 8) {
        memcpy(&v, s, 8);
        h = mix(v ^ h, 0xa0761d6478bd642full);
    }
    memcpy(&v, s, 8);
    return mix((n < 8 ? v & ((1ull << (8 * n)) - 1) : v) ^ h, 0xe7037ed1a0b428dbull);
}

static u64 at_place(u64 piece, u32 place) { return mix(piece, 0x9e3779b97f4a7c15ull * (2 * (u64)place + 1)); }

static void take_apart(const Folds *f, const Masks *m, Pieces *p) {
    const u8 *out = m->out.items;
    u64 seed = ~f->state.seed;
    size_t from = 0;
    p->all = 0;
    for (u32 w = 0; w < m->word_count; w++) {
        const Word *word = &m->words[w];
        p->words[w] = hash_piece(out + word->start, word->end - word->start, seed);
        p->all += at_place(p->words[w], 2 * w) + at_place(hash_piece(out + from, word->start - from, seed), 2 * w + 1);
        from = word->end;
    }
    p->all += at_place(hash_piece(out + from, m->length - from, seed), 2 * m->word_count + 1);
}

/* The key of the text with word `which` left out, wherever it stands */
static u64 key_without(const Pieces *p, u32 count, u32 which) {
    u64 key = p->all;
    for (u32 w = 0; w < count; w++)
        if (p->words[w] == p->words[which]) key += at_place(0, 2 * w) - at_place(p->words[w], 2 * w);
    return key | 1;
}

static int is_first(const Pieces *p, u32 which) {
    for (u32 w = 0; w < which; w++) if (p->words[w] == p->words[which]) return 0;
    return 1;
}

static void leave_out(Folds *f, Masks *m, u32 which) {
    size_t length = without(m, which, f->scratch.items);
    Word word = m->words[which], left[MOST_WORDS];
    u32 count = 0, shorter = 0, by = word.end - word.start - 1;
    for (u32 w = 0; w < m->word_count; w++) {
        if (same_word(m, &m->words[w], &word)) shorter += by;
        else left[count++] = (Word){m->words[w].start - shorter, m->words[w].end - shorter};
    }
    memcpy(m->out.items, f->scratch.items, length);
    memcpy(m->words, left, count * sizeof *left);
    m->length = length;
    m->word_count = count;
}

static u64 *open_bit(Folds *f, u64 key, u64 *bit) {
    *bit = 1ull << (key >> 32 & 63);
    return &f->open[key >> 38 & (OPEN_BITS / 64 - 1)];
}

static void open_place(Folds *f, Place *place) {
    u64 bit, *word = open_bit(f, place->key, &bit);
    *word |= bit;
    place->open = 1;
}

static int is_open(Folds *f, u64 key) {
    u64 bit;
    if (!(*open_bit(f, key, &bit) & bit)) return 0;
    const Place *place = entry_of(&f->places, &f->place_count, key, MOST_PLACES, 0);
    return place && place->open;
}

/* Words whose places are known to vary are left out; whether there was one. `pieces` are those of the text as it is then. */
static int generalise(Folds *f, Masks *m, Pieces *pieces) {
    int any = 0;
    take_apart(f, m, pieces);
    for (u32 w = 0; w < m->word_count;) {
        if (!is_open(f, key_without(pieces, m->word_count, w))) { w++; continue; }
        if (!grow(&f->scratch, m->length + 64)) return -1;
        leave_out(f, m, w);
        take_apart(f, m, pieces);
        any = 1;
        w = 0;
    }
    return any;
}

/* A new fold is evidence that the words of its text may vary, each at its place: five rare words do, ten where little else is
   said. A word that is one of a few stays what it is. */
static void learn_places(Folds *f, const Masks *m, const Pieces *pieces, u32 fold) {
    const Fold *folds = f->folds.items;
    u32 needed = m->word_count > 2 ? 5 : VALUES, count = 0;
    u64 keys[MOST_WORDS];
    for (u32 w = 0; w < m->word_count; w++) {
        if (!is_first(pieces, w)) continue;
        keys[count] = key_without(pieces, m->word_count, w);
        expect(&f->places, keys[count++]);
    }
    for (u32 k = 0; k < count; k++) {
        Place *place = entry_of(&f->places, &f->place_count, keys[k], MOST_PLACES, 1);
        if (!place || place->open) continue;
        place->distinct++;
        if (place->count == VALUES) { /* what came often since leaves room */
            u32 kept = 0;
            for (u32 v = 0; v < VALUES; v++) if (folds[place->folds[v]].count <= RARE) place->folds[kept++] = place->folds[v];
            place->count = kept;
            if (kept == VALUES) { open_place(f, place); continue; }
            if (place->distinct >= ALTERNATION) open_place(f, place);
        }
        place->folds[place->count++] = fold;
        u32 rare = 0;
        for (u32 v = 0; v < place->count; v++) rare += folds[place->folds[v]].count <= RARE;
        if (rare >= needed || place->distinct >= ALTERNATION) open_place(f, place);
        else place->open = 0;
    }
}

static int keep_text(Folds *f, const Kept *record, const u8 *text) {
    u8 *to = grow(&f->text, record->length + 1);
    Kept *kept = grow(&f->kept, 1);
    if (!to || !kept) return -1;
    *kept = *record;
    kept->offset = (u32)f->text.count;
    if (record->rule == UNKNOWN && record->length > LONG_LINE) kept->length = (u32)shortened(text, record->length, to);
    else if (record->length) memcpy(to, text, record->length);
    to[kept->length] = '\n';
    f->text.count += kept->length + 1;
    f->kept.count++;
    return 0;
}

/* The line that was folded last goes out after all: it stands right before a failure, or is the last of its source. */
static int let_go(Folds *f, long long *lines) {
    FoldState *s = &f->state;
    if (!s->held) return 0;
    Kept record = {s->held_line, 0, (u32)f->held.count, UNKNOWN, 0, 0, 0};
    if (keep_text(f, &record, f->held.items)) return -1;
    if (s->held_counted) --*lines;
    else if (s->held_line == s->line) s->remaining = 1;
    s->held = 0;
    return 0;
}

static void finish_line(Folds *f, long long *lines) {
    FoldState *s = &f->state;
    if (s->folded && !s->remaining) {
        ++*lines;
        if (s->held && s->held_line == s->line) s->held_counted = 1;
    }
    s->folded = s->remaining = 0;
}

/* Whether a line that sounds like a failure does so: sounds(text, body) -> bool */
static int ask_sound(PyObject *sounds, const u8 *text, size_t n, size_t body, PyThreadState **thread) {
    PyEval_RestoreThread(*thread);
    PyObject *answer = PyObject_CallFunction(sounds, "y#n", (const char *)text, (Py_ssize_t)n, (Py_ssize_t)body);
    int sound = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    *thread = PyEval_SaveThread();
    return sound;
}

enum { FAILED = -1, STAYS = 0, FOLDS = 1 };

static u64 hash_text(const u8 *s, size_t n, u64 seed) {
    u64 h = seed ^ (n * 0x9e3779b97f4a7c15ull), v;
    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&v, s, 8);
        h = mix(v ^ h, 0xa0761d6478bd642full);
    }
    v = 0;
    if (n) memcpy(&v, s, n);
    return mix(v ^ h, 0xe7037ed1a0b428dbull);
}

/* May the line name a secret that stands in the next one ("name: HF_PASSWORD", "value: ...")? Redaction must see both. */
static int names_secret(const u8 *body, size_t n) {
    static const char *const words[] = {"pass", "pwd", "secret", "token", "key", "auth", "cred", "cookie", "private"};
    for (size_t at = 0; at < n; at++)
        for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
            size_t i = 0;
            while (words[w][i] && at + i < n && (body[at + i] | 0x20) == (u8)words[w][i]) i++;
            if (!words[w][i]) return 1;
        }
    return 0;
}

/* Does the line name a secret, for a line behind it to hold? Then it stays, wherever it folds by itself. */
static int opens_secret(const u8 *body, size_t n) {
    size_t at = 0;
    while (at < n && at < 80 && strchr(" \t-\"'{[,", body[at]) && body[at]) at++;
    if (n - at < 6) return 0;
    for (const char *c = "name"; *c; c++, at++) if ((body[at] | 0x20) != (u8)*c) return 0;
    if (body[at] == '"' || body[at] == '\'') at++;
    return at < n && (body[at] == ':' || body[at] == '=') && names_secret(body + at, n - at);
}

/* One line of a fold: is it one too many? A copy of the first one is, and of the second one. */
static int repeats(Folds *f, Fold *fold, const Masks *m, u64 who, u64 late, u64 line, int copy) {
    u64 silence = line > fold->last ? line - fold->last : 0;
    int told = fold->slots == m->slots ? numbers_tell(f, fold, m) : 1;
    int news = silence > SILENCE && silence > 4 * fold->silence;
    if (fold->count && silence > fold->silence) fold->silence = silence;
    if (who) { /* one that says its first line at all, or this one after the others are long done with it */
        size_t before = f->who_count;
        entry_of(&f->who, &f->who_count, (who + 2 * f->state.run) | 1, MOST_WHO, 1);
        news |= f->who_count != before;
        before = f->who_count;
        entry_of(&f->who, &f->who_count, mix(fold->key, who ^ f->state.seed) | 1, MOST_WHO, 1);
        news |= f->who_count != before && silence >= late;
    }
    fold->last = line;
    return (fold->count++ < f->state.keep && !copy) || told || news ? STAYS : FOLDS;
}

/* The same, remembered for all lines that differ in numbers only, and in those not in how they are written. */
static int is_sign(Folds *f, const u8 *text, size_t n, size_t at, PyObject *sounds, PyThreadState **thread) {
    Masks *m = &f->masks;
    if (mask(m, text + at, n - at, WORDY)) return FAILED;
    u64 key = hash_masked(f, m);
    const Masked *numbers = m->numbers.items;
    for (size_t k = 0; k < m->numbers.count; k++) key = mix(key ^ numbers[k].kind, 0xa0761d6478bd642full);
    key = (key | 3) ^ 2; /* ...01 is calm, ...11 is a sign */
    if (entry_of(&f->heard, &f->heard_count, key, MOST_HEARD, 0)) return 0;
    if (entry_of(&f->heard, &f->heard_count, key | 2, MOST_HEARD, 0)) return 1;
    int answer = ask_sound(sounds, text, n, at, thread);
    if (f->heard_count >= MOST_HEARD) { memset(f->heard.items, 0, f->heard.count * sizeof(u64)); f->heard_count = 0; }
    if (answer >= 0) entry_of(&f->heard, &f->heard_count, key | (answer ? 2 : 0), MOST_HEARD, 1);
    return answer;
}

/* Copies of one text that several processes wrote into one line are one copy. */
static void unglue(Masks *m) {
    const u8 *out = m->out.items;
    for (size_t copies = MOST_GLUED; copies > 1; copies--) {
        size_t one = m->length / copies;
        if (one < 8 || one * copies != m->length || memcmp(out, out + one, m->length - one)) continue;
        m->length = one;
        return;
    }
}

/* A body is what is new behind a regular line: a sample, an answer. It ends with the next regular line, and with a failure. */
static void end_body(Folds *f) {
    FoldState *s = &f->state;
    if (s->head) {
        Fold *head = (Fold *)f->folds.items + (s->head - 1);
        if (s->body > head->longest) head->longest = s->body;
    }
    s->head = s->body = 0;
}

static void begin_body(Folds *f, const Fold *fold, const Masks *m, u64 who) {
    if (fold->count < f->state.keep || !m->word_count) return; /* a line of signs only may head anything */
    end_body(f);
    f->state.head = (u32)(fold - (const Fold *)f->folds.items) + 1;
    f->state.head_who = who;
}

/* Whether a new line is a known one but for a word: another word stands there, or one in place of a number. */
static int is_variant(Folds *f, const Masks *m, const Pieces *pieces) {
    const u8 *out = m->out.items;
    if (!grow(&f->scratch, m->length + 64)) return -1;
    u8 *to = f->scratch.items;
    for (u32 w = 0; w < m->word_count; w++) {
        const Word *word = &m->words[w];
        size_t rest = m->length - word->end, length = word->start + 1 + rest;
        if (not_finite(out + word->start, word->end - word->start)) return 1;
        if (entry_of(&f->places, &f->place_count, key_without(pieces, m->word_count, w), MOST_PLACES, 0)) return 1;
        memcpy(to, out, word->start);
        to[word->start] = NUMBER_MASK;
        memcpy(to + word->start + 1, out + word->end, rest);
        memset(to + length, 0, 16);
        u64 key = hash_of(to, length, f->state.seed);
        if (fold_at(f, key ? key : 1)) return 1;
    }
    return 0;
}

/* Whether a new line is one of a body that always follows its head, as more bodies did than lines of a fold are kept. */
static int follows(Folds *f, u64 who) {
    FoldState *s = &f->state;
    if (!s->head || s->head_who != who) return 0;
    Fold *head = (Fold *)f->folds.items + (s->head - 1);
    head->bodies += !s->body++;
    return head->bodies > s->keep && (u64)head->bodies * 4 >= (head->count - s->keep + 1) * 3 && s->body <= LONGER * head->longest;
}

/* ------------------------------------------------------------------------------------------------- runs in one source

   A program that is started again says its first lines again, in their order, and some of them word by word. These stay, and so
   does what sounds like a failure and who speaks for the first time in this run. A line that is said again in one run, be it by the same
   rank or host, is none of the first lines. Where they come again after as many lines as the last time, and nothing failed, it is
   the work that comes again: an epoch, say. From then on a run begins only behind one that failed. Runs that were found among
   such work do not count, but those that are divided by a failure do. */

/* A line's words and its numbers but for ids and times; 0 for an error */
static u64 words_of(Folds *f, const u8 *body, size_t n) {
    Masks *m = &f->loud;
    if (mask(m, body, n, WORDY)) return 0;
    u64 h = hash_masked(f, m);
    const Masked *numbers = m->numbers.items;
    for (size_t k = 0; k < m->numbers.count; k++) {
        u64 bits;
        if (fabs(numbers[k].value) >= LEAST_ID) continue;
        memcpy(&bits, &numbers[k].value, sizeof bits);
        h = mix(h ^ bits, 0xa0761d6478bd642full);
    }
    return h | 1;
}

static int first_line(Folds *f, Fold *fold, const Masks *m, const u8 *body, size_t n, u64 who, u64 line) {
    FoldState *s = &f->state;
    if (s->run || f->first.count >= HEAD_LINES || m->word_count < 2 || blank(*body)) return 0;
    if (!f->first.count) s->begun = line;
    if (line - s->begun >= HEAD_SPAN) return 0;
    u64 words = words_of(f, body, n);
    Begun *first = words ? grow(&f->first, 1) : NULL;
    if (!first) return -1;
    *first = (Begun){fold->key, words, who};
    fold->begins = (u32)++f->first.count;
    s->firsts++;
    s->begun_last = line;
    return 0;
}

static int no_first_line(Folds *f, u32 at) {
    Begun *its = (Begun *)f->first.items + at;
    f->state.firsts -= its->key != 0;
    its->key = 0;
    return 0;
}

/* Work that comes again is no run. If something failed in this source before, the runs up to there stay. */
static void take_back(Folds *f) {
    FoldState *s = &f->state;
    const u64 *starts = f->runs.items;
    if (!s->ailed) { s->counted = 0; f->runs.count = 0; }
    else if (f->runs.count && starts[f->runs.count - 1] == s->run_line) { s->counted--; f->runs.count--; }
    s->regular = 1;
}

static int count_run(Folds *f) {
    FoldState *s = &f->state;
    u64 *start = grow(&f->runs, 1);
    if (!start) return -1;
    *start = s->opened;
    if (++f->runs.count > MOST_RUNS) memmove(f->runs.items, (u64 *)f->runs.items + 1, --f->runs.count * sizeof *start);
    s->run++;
    s->counted++;
    s->regular = 0;
    f->told.count = 0;
    return 0;
}

/* Enough of the first lines came again: a run begins, or the work comes again. */
static int run_begins(Folds *f) {
    FoldState *s = &f->state;
    u64 length = s->opened - (s->run_line ? s->run_line : s->begun);
    int equal = 16 * (length > s->length ? length - s->length : s->length - length) <= length;
    int ended = s->failure < s->opened && s->opened - s->failure <= HEAD_SOON; /* the last words were those of a failure */
    if (s->regular ? s->ailing && (!equal || ended) : s->ailing || !equal) { if (count_run(f)) return -1; }
    else if (!s->regular) take_back(f);
    s->run_line = s->opened;
    if (!s->regular) s->length = s->ailing ? 0 : length; /* else it is that of the work that comes again */
    s->opened = s->ailing = 0;
    return 0;
}

/* One of the first lines comes again: 1 where it may begin a run and so stays, 0 where it does not, -1 for an error */
static int begins_anew(Folds *f, const Fold *fold, const u8 *body, size_t n, u64 who, u64 line) {
    FoldState *s = &f->state;
    const Begun *first = f->first.items;
    u32 at = fold->begins - 1, before = 0;
    if (!first[at].key || first[at].who != who) return 0;
    if (s->opened && line - s->opened > HEAD_WINDOW) { /* the others did not come behind it */
        s->opened = 0;
        no_first_line(f, s->opened_at);
        if (!first[at].key) return 0;
    }
    for (u32 k = 0; k < at; k++) before += first[k].key != 0;
    int quiet = before < 2 && line - s->begun_last >= (s->failed ? HEAD_SOON : HEAD_SPAN);
    if (quiet && (!s->opened || at <= s->opened_at)) {
        s->opened = line;
        s->opened_at = at;
        s->next = s->seen = s->same = 0;
    }
    if (!s->opened) return s->run && line - s->run_line < HEAD_WINDOW ? 0 : no_first_line(f, at);
    s->begun_last = line;
    s->failed = 0;
    if (at < s->next) return no_first_line(f, at);
    u64 words = words_of(f, body, n);
    if (!words) return -1;
    s->next = at + 1;
    s->seen++;
    s->same += first[at].words == words;
    if (2 * s->seen >= s->firsts && s->same > 1 && (s->seen < HEAD_LEAST ? s->same == s->seen : 3 * s->same >= s->seen)) {
        if (run_begins(f)) return -1;
    }
    return !s->regular || s->ailing;
}

/* What Python is asked about lines, and the lines at which it knows that another run has begun, eight bytes each */
typedef struct { PyObject *sounds, *plan; PyThreadState *thread; const char *runs; Py_ssize_t runs_length; } Asked;

static void next_told(Folds *f, Asked *asked) {
    if (f->state.told_run) { f->state.run++; f->told.count = 0; }
    f->state.told_run = 0;
    if (asked->runs_length < (Py_ssize_t)sizeof(u64)) return;
    memcpy(&f->state.told_run, asked->runs, sizeof(u64));
    asked->runs += sizeof(u64);
    asked->runs_length -= (Py_ssize_t)sizeof(u64);
}

/* The caller saw a run begin that folds do not see: what fails in it is no copy of what failed before. */
static void begin_told(Folds *f, Asked *asked, u64 line) {
    if (!f->state.told_run) next_told(f, asked);
    while (f->state.told_run && f->state.told_run <= line) next_told(f, asked);
}

/* The numbers of a line that sounds like a failure: it folds as it stands, so its numbers are looked for by themselves. */
static int read_loud(Folds *f, const u8 *body, size_t n, const Kept *record, Asked *asked) {
    if (mask(&f->loud, body, n, COARSE)) return -1;
    u32 plan = plan_of(&f->readings, hash_masked(f, &f->loud), &f->loud, body, n, record->line, asked->plan, &asked->thread);
    return plan == UINT32_MAX || (plan > NO_PLAN && read_line(&f->readings, plan, &f->loud, record)) ? -1 : 0;
}

static int judge_fold(Folds *f, const Kept *record, const u8 *text, Asked *asked) {
    FoldState *s = &f->state;
    size_t n = record->length, at = body_start(text, n);
    const u8 *body = text + at;
    int sound = sounding(text, n), made = 0, framed = s->framed; /* a frame of a traceback, or its code, also where a prefix takes the blanks before it */
    s->framed = starts(body, n - at, 0, "File \"");
    framed |= s->framed;
    if (starts(body, n - at, 0, "Traceback (most recent call")) {
        end_body(f);
        s->guard = IN_TRACEBACK;
        s->in_traceback = 1;
        return STAYS;
    }
    if (sound & MAY_BE_DUMP) s->dump = IN_DUMP;
    if (s->dump) { s->dump--; return STAYS; }
    if (s->guard) { s->guard--; if (n > at && (blank(*body) || framed)) return STAYS; }
    if (f->folds.count >= MOST_FOLDS || f->ranges.count >= MOST_RANGES) forget_folds(f);
    Masks *m = &f->masks;
    u64 who = who_speaks(f, text, at);
    if (who) expect(&f->who, (who + 2 * f->state.run) | 1);
    int sign = sound & MAY_SOUND ? is_sign(f, text, n, at, asked->sounds, &asked->thread) : 0;
    if (sign < 0 || mask(m, body, n - at, sign ? EXACT : COARSE)) return FAILED;
    if (sign && read_loud(f, body, n - at, record, asked)) return FAILED;
    if (sign) unglue(m);
    u64 key = hash_masked(f, m);
    if (sign) key = mix(key + s->run, ~s->seed) | 1; /* only its very copies of this run are its like */
    Fold *fold = fold_at(f, key);
    u32 plan = sign ? NO_PLAN : fold ? fold->plan : 0;
    if (!plan) plan = plan_of(&f->readings, key, m, body, n - at, record->line, asked->plan, &asked->thread);
    if (plan == UINT32_MAX || (plan > NO_PLAN && read_line(&f->readings, plan, m, record))) return FAILED;
    if (fold && !is_row(m)) fold->plan = plan; /* what a row is depends on its header */
    Pieces pieces;
    if (!fold && !sign) {
        if ((made = generalise(f, m, &pieces)) < 0) return FAILED;
        if (made) { key = hash_masked(f, m); fold = fold_at(f, key); }
    }
    if (!fold && !sign && !made && follows(f, who) && plan == NO_PLAN) {
        int variant = is_variant(f, m, &pieces);
        if (variant < 0) return FAILED;
        if (!variant) {
            ((Fold *)f->folds.items + (s->head - 1))->behind++;
            return FOLDS;
        }
    }
    if (!fold) {
        if (!(fold = new_fold(f, key, m->slots, record->line))) return FAILED;
        if (made) fold->count = s->keep; /* the lines that showed that a word varies stand for the first ones */
        else if (!sign) learn_places(f, m, &pieces, (u32)f->folds.count - 1);
    }
    int anew = fold->begins ? begins_anew(f, fold, body, n - at, who, record->line) : 0;
    if (anew < 0 || (!fold->count && !sign && !framed && first_line(f, fold, m, body, n - at, who, record->line))) return FAILED;
    int copy = 0;
    if (sign) s->failure = record->line;
    else if (fold->count < s->keep) {
        u64 exact = hash_text(body, n - at, s->seed);
        copy = fold->count && fold->exact == exact;
        if (!fold->count) fold->exact = exact;
        else if (!copy) {
            u64 words = words_of(f, body, n - at);
            if (!words) return FAILED;
            copy = fold->words == ((u32)words | 1);
            if (!fold->words) fold->words = (u32)words | 1;
        }
        copy = copy && fold->last > s->failure && record->line > SHORT && !names_secret(body, n - at); /* behind a failure it shows that the program goes on */
    }
    int stays = repeats(f, fold, m, who, sign ? 0 : LATE, record->line, copy) == STAYS || anew || opens_secret(body, n - at);
    if (sign) end_body(f);
    else begin_body(f, fold, m, who);
    if (sign && (stays || s->in_traceback)) {
        if (fold->count <= OFTEN || s->in_traceback) s->guard = GUARDED;
        s->in_traceback = 0;
        return STAYS;
    }
    if (stays) return STAYS;
    fold->folded++;
    if (fold->sample == NO_SAMPLE) {
        Sample *sample = grow(&f->samples, 1);
        if (!sample) return FAILED;
        fold->sample = (u32)f->samples.count++;
    }
    Sample *sample = (Sample *)f->samples.items + fold->sample;
    sample->length = (u32)(n < SAMPLE ? n : SAMPLE);
    memcpy(sample->text, text, sample->length);
    return FOLDS;
}

/* ----------------------------------------------------------------------------------------------------- copies of tracebacks

   A traceback that came before, from its header to its exception, loses its frames but for the deepest. Until its last line has
   come its lines wait; those of one that begins as no earlier one did never wait. Each speaker's are counted apart. */

static const char traceback_head[] = "Traceback (most recent call last):";
#define HEAD (sizeof traceback_head - 1)

/* A line of a failure rule: the indented lines behind it stay, unless there were very many of its rule in this run. Frames always
 * stay. The numbers of rules belong to one matcher: if a snapshot goes on with other rules, a count may be that of another rule
 * until the next run begins. That decides on such indented lines only. */
static int fails(Folds *f, const Kept *record, const u8 *its) {
    FoldState *s = &f->state;
    size_t n = record->length, at = body_start(its, n);
    s->failed = s->ailing = s->ailed = 1;
    s->failure = record->line;
    end_body(f);
    while (f->told.count <= (u32)record->rule && f->told.count < MOST_RULES) {
        u32 *more = grow(&f->told, 1);
        if (!more) return -1;
        *more = 0;
        f->told.count++;
    }
    while (at < n && blank(its[at])) at++;
    int frame = starts(its, n, at, "File \"") || starts(its, n, at, "Traceback (");
    u32 *told = (u32)record->rule < MOST_RULES ? (u32 *)f->told.items + record->rule : NULL;
    if (!told || frame || (*told)++ < OFTEN) s->guard = GUARDED;
    return 0;
}

/* A record takes its place behind those before it: it stays or folds. */
static int place(Folds *f, const Kept *record, const u8 *its, Asked *asked, long long *lines) {
    FoldState *s = &f->state;
    if (record->line != s->line) { finish_line(f, lines); s->line = record->line; }
    begin_told(f, asked, record->line);
    int verdict = STAYS;
    u32 guarded = s->guard;
    if (record->rule != UNKNOWN) { if (record->rule >= 0 && fails(f, record, its)) return -1; }
    else if (!record->cut) verdict = judge_fold(f, record, its, asked);
    if (verdict == FAILED) return -1;
    if (verdict == STAYS) {
        if (s->guard > guarded && let_go(f, lines)) return -1;
        s->held = 0; /* it would come after this one */
        if (keep_text(f, record, its)) return -1;
        s->remaining = 1;
        return 0;
    }
    s->folded = 1;
    s->held = 1;
    s->held_counted = 0;
    s->held_line = record->line;
    f->held.count = 0;
    u8 *room = grow(&f->held, record->length);
    if (!room) return -1;
    memcpy(room, its, record->length);
    f->held.count = record->length;
    return 0;
}

/* The waiting lines take their places; those from `from` up to `to` fold, but for what sounds like a failure. */
static int release(Folds *f, size_t from, size_t to, Asked *asked, long long *lines) {
    FoldState *s = &f->state;
    const Kept *waiting = f->waiting.items;
    const u8 *text = f->waiting_text.items;
    s->chain = 0;
    for (size_t k = 0; k < f->waiting.count; k++) {
        Kept record = waiting[k];
        record.end = 0;
        if (k < from || k >= to || waiting[k].end) {
            if (place(f, &record, text + record.offset, asked, lines)) return -1;
            continue;
        }
        finish_line(f, lines);
        s->line = record.line;
        s->folded = 1;
        s->held = 0;
    }
    f->waiting.count = f->waiting_text.count = 0;
    return 0;
}

static int wait_for_more(Folds *f, const Kept *record, const u8 *its, int sign) {
    Kept *waiting = grow(&f->waiting, 1);
    u8 *to = grow(&f->waiting_text, record->length);
    if (!waiting || !to) return -1;
    *waiting = *record;
    waiting->offset = (u32)f->waiting_text.count;
    waiting->start = 0; /* its block may be gone */
    waiting->end = (u32)sign;
    if (record->length) memcpy(to, its, record->length);
    f->waiting_text.count += record->length;
    f->waiting.count++;
    f->state.chain_line = record->line;
    return 0;
}

/* Where the deepest frame of the waiting traceback begins */
static size_t deepest(const Folds *f) {
    const Kept *waiting = f->waiting.items;
    const u8 *text = f->waiting_text.items;
    for (size_t k = f->waiting.count; k > 1; k--) {
        const u8 *its = text + waiting[k - 1].offset;
        size_t n = waiting[k - 1].length, at = body_start(its, n);
        while (at < n && blank(its[at])) at++;
        if (starts(its, n, at, "File \"")) return k - 1;
    }
    return 1;
}

/* How often the waiting lines and this one, of one speaker, came in this order; that they did is counted. */
static u64 came(Folds *f, u64 chain, u64 who, const u8 *body, size_t n, u64 *key) {
    if (mask(&f->masks, body, n, EXACT)) return UINT64_MAX;
    *key = mix(mix(chain ^ f->state.seed, 0x9e3779b97f4a7c15ull) ^ who, hash_masked(f, &f->masks) + f->state.run) | 1;
    Chain *known = entry_of(&f->chains, &f->chain_count, *key, MOST_CHAINS, 1);
    return known ? known->count++ : 0;
}

/* One record: it waits, or it and those that waited take their places. */
static int take(Folds *f, const Kept *record, const u8 *its, Asked *asked, long long *lines) {
    FoldState *s = &f->state;
    size_t n = record->length, at = 0;
    int waits = f->waiting.count != 0, heads = n >= HEAD && !memcmp(its + n - HEAD, traceback_head, HEAD);
    if (heads || s->chain) at = body_start(its, n);
    heads = heads && at == n - HEAD && !record->cut && record->line != s->line;
    if (s->chain && !heads) {
        int next = !record->cut && record->line == s->chain_line + 1, inside = next && n > at && blank(its[at]);
        u64 key = 0, count = next ? came(f, s->chain, who_speaks(f, its, at), its + at, n - at, &key) : 0;
        if (count == UINT64_MAX) return -1;
        int known = count >= s->keep && f->waiting.count < MOST_WAITING && f->waiting_text.count < MOST_WAITING_BYTES;
        if (inside && waits && known) {
            int sign = sounding(its, n) & MAY_SOUND ? is_sign(f, its, n, at, asked->sounds, &asked->thread) : 0;
            if (sign < 0) return -1;
            s->chain = key;
            return wait_for_more(f, record, its, sign);
        }
        if (waits && release(f, 1, next && !inside && known ? deepest(f) : 1, asked, lines)) return -1;
        s->chain = inside ? key : 0;
        s->chain_line = record->line;
        return place(f, record, its, asked, lines);
    }
    if (waits && release(f, 1, 1, asked, lines)) return -1;
    s->chain = 0;
    if (!heads) return place(f, record, its, asked, lines);
    u64 count = came(f, 0, who_speaks(f, its, at), its + at, n - at, &s->chain);
    if (count == UINT64_MAX) return -1;
    s->chain_line = record->line;
    return count >= s->keep ? wait_for_more(f, record, its, 0) : place(f, record, its, asked, lines);
}

/* All records of a block; 0, or -1 with *error where Python raised. `lines`: how many physical lines fold. */
static int sift(Folds *f, const u8 *text, const Kept *records, size_t count, u64 line, Asked *asked, long long *lines) {
    FoldState *s = &f->state;
    for (size_t k = 0; k < count; k++) {
        if (take(f, &records[k], text + records[k].offset, asked, lines)) return -1;
    }
    if (line > s->line) { finish_line(f, lines); s->line = 0; }
    while (asked->runs_length) next_told(f, asked); /* the last one waits for its line */
    return 0;
}

/* ------------------------------------------------------------------------------------------------------ towards Python */

enum {
    FOLDS_AT, RANGES_AT, SAMPLES_AT, PLACES_AT, WHO_AT, HELD_AT, CHAINS_AT, WAITING_AT, WAITING_TEXT_AT, PLANS_AT, READERS_AT, KNOWN_AT,
    FORMS_AT, EARLY_AT, FIRST_AT, RUNS_AT, TOLD_AT, VECTORS,
};

static Vector *const *folds_vectors(Folds *f, Vector *room[VECTORS]) {
    Readings *r = &f->readings;
    Vector *all[VECTORS] = {&f->folds, &f->ranges, &f->samples, &f->places, &f->who, &f->held,
                            &f->chains, &f->waiting, &f->waiting_text, &r->plans, &r->readers, &r->known, &r->forms, &r->early, &f->first, &f->runs, &f->told};
    memcpy(room, all, sizeof all);
    return room;
}

/* Folds(keep, seed, state, names): state is what another one's state() gave, or empty; names: words that names of numbers have */
static int folds_init(PyObject *self, PyObject *args, PyObject *kwargs) {
    Folds *f = (Folds *)self;
    unsigned keep;
    unsigned long long seed;
    const char *data, *names;
    Py_ssize_t length, names_length;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "IKy#y#", &keep, &seed, &data, &length, &names, &names_length)) return -1;
    if (f->slots) { PyErr_SetString(PyExc_RuntimeError, "folds are made once"); return -1; }
    if (!keep) { PyErr_SetString(PyExc_ValueError, "at least one line of a fold is kept"); return -1; }
    if (take_names(&f->readings, (const u8 *)names, (size_t)names_length)) { PyErr_SetString(PyExc_ValueError, "there are too many names"); return -1; }
    f->state.keep = keep;
    f->state.seed = seed;
    Vector *vectors[VECTORS];
    folds_vectors(f, vectors);
    static const size_t sizes[VECTORS] = {sizeof(Fold), sizeof(Range), sizeof(Sample), sizeof(Place), sizeof(u64), 1, sizeof(Chain), sizeof(Kept), 1, sizeof(Plan),
                                          sizeof(Reader), sizeof(Known), sizeof(Form), sizeof(Early), sizeof(Begun), sizeof(u64), sizeof(u32)};
    for (int k = 0; k < VECTORS; k++) vectors[k]->size = sizes[k];
    f->masks.out.size = f->loud.out.size = f->text.size = f->scratch.size = 1;
    f->masks.numbers.size = f->loud.numbers.size = sizeof(Masked);
    f->kept.size = sizeof(Kept);
    f->heard.size = sizeof(u64);
    f->readings.numbers.size = sizeof(Number);
    f->readings.state = (ReadingState){.step = NAN};
    size_t left = (size_t)length;
    if (left) {
        u64 counts[VECTORS + 4]; /* of the vectors, then places, speakers, plans and chains that are known */
        const size_t head = sizeof f->state + sizeof f->readings.state + sizeof counts;
        if (left < head) goto damaged;
        memcpy(&f->state, data, sizeof f->state);
        f->state.keep = keep;
        memcpy(&f->readings.state, data + sizeof f->state, sizeof f->readings.state);
        memcpy(counts, data + sizeof f->state + sizeof f->readings.state, sizeof counts);
        data += head;
        left -= head;
        for (int k = 0; k < VECTORS; k++) {
            if (counts[k] > left / sizes[k]) goto damaged;
            if ((k == PLACES_AT || k == WHO_AT || k == KNOWN_AT || k == CHAINS_AT) && (counts[k] & (counts[k] - 1))) goto damaged;
            size_t bytes = (size_t)counts[k] * sizes[k];
            if (counts[k]) {
                vectors[k]->items = malloc(bytes);
                if (!vectors[k]->items) { PyErr_NoMemory(); return -1; }
                memcpy(vectors[k]->items, data, bytes);
                vectors[k]->count = vectors[k]->room = (size_t)counts[k];
            }
            data += bytes;
            left -= bytes;
        }
        f->place_count = (size_t)counts[VECTORS];
        f->who_count = (size_t)counts[VECTORS + 1];
        f->readings.known_count = (size_t)counts[VECTORS + 2];
        f->chain_count = (size_t)counts[VECTORS + 3];
        size_t places = 0, speakers = 0, chains = 0;
        for (size_t k = 0; k < f->places.count; k++) places += ((const Place *)f->places.items)[k].key != 0;
        for (size_t k = 0; k < f->who.count; k++) speakers += ((const u64 *)f->who.items)[k] != 0;
        for (size_t k = 0; k < f->chains.count; k++) chains += ((const Chain *)f->chains.items)[k].key != 0;
        if (f->chain_count != chains || (chains && chains * 2 > f->chains.count)) goto damaged;
        for (size_t k = 0; k < f->waiting.count; k++) {
            const Kept *waiting = (const Kept *)f->waiting.items + k;
            if ((u64)waiting->offset + waiting->length > f->waiting_text.count) goto damaged;
        }
        if (f->state.head > f->folds.count || f->first.count > HEAD_LINES || f->runs.count > MOST_RUNS || f->told.count > MOST_RULES) goto damaged;
        if (f->state.counted < f->runs.count) goto damaged;
        if (f->state.firsts > f->first.count || (f->state.opened && f->state.opened_at >= f->first.count)) goto damaged;
        if (left || f->place_count != places || f->who_count != speakers) goto damaged;
        if ((places && places * 2 > f->places.count) || (speakers && speakers * 2 > f->who.count)) goto damaged;
        for (size_t k = 0; k < f->folds.count; k++) {
            const Fold *fold = (const Fold *)f->folds.items + k;
            if ((u64)fold->ranges + fold->slots > f->ranges.count || fold->slots > MOST_SLOTS
                || (fold->plan > NO_PLAN && fold->plan - 2 >= f->readings.plans.count)
                || fold->begins > f->first.count
                || (fold->sample == NO_SAMPLE ? fold->folded != 0 : fold->sample >= f->samples.count)) goto damaged;
        }
        for (size_t k = 0; k < f->places.count; k++) {
            const Place *place = (const Place *)f->places.items + k;
            if (place->count > VALUES) goto damaged;
            if (place->open) open_place(f, (Place *)f->places.items + k);
            for (u32 v = 0; v < place->count; v++) if (place->folds[v] >= f->folds.count) goto damaged;
        }
        for (size_t k = 0; k < f->samples.count; k++) if (((Sample *)f->samples.items)[k].length > SAMPLE) goto damaged;
        if (!sound_readings(&f->readings)) goto damaged;
    }
    u32 mask = 63;
    while (f->folds.count * 2 > mask) mask = mask * 2 + 1;
    if (index_folds(f, mask)) { PyErr_NoMemory(); return -1; }
    return 0;
damaged:
    PyErr_SetString(PyExc_ValueError, "that is not the state of folds");
    return -1;
}

static PyObject *folds_state(PyObject *self, PyObject *unused) {
    Folds *f = (Folds *)self;
    Vector *vectors[VECTORS];
    (void)unused;
    folds_vectors(f, vectors);
    u64 counts[VECTORS + 4];
    size_t total = sizeof f->state + sizeof f->readings.state + sizeof counts;
    for (int k = 0; k < VECTORS; k++) { counts[k] = vectors[k]->count; total += vectors[k]->count * vectors[k]->size; }
    counts[VECTORS] = f->place_count;
    counts[VECTORS + 1] = f->who_count;
    counts[VECTORS + 2] = f->readings.known_count;
    counts[VECTORS + 3] = f->chain_count;
    PyObject *result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (!result) return NULL;
    char *to = PyBytes_AsString(result);
    memcpy(to, &f->state, sizeof f->state);
    to += sizeof f->state;
    memcpy(to, &f->readings.state, sizeof f->readings.state);
    to += sizeof f->readings.state;
    memcpy(to, counts, sizeof counts);
    to += sizeof counts;
    for (int k = 0; k < VECTORS; k++) {
        size_t bytes = vectors[k]->count * vectors[k]->size;
        if (bytes) memcpy(to, vectors[k]->items, bytes);
        to += bytes;
    }
    return result;
}

static PyObject *folds_result(const Folds *f, long long lines) {
    PyObject *numbers = numbers_list(&f->readings.numbers);
    if (!numbers) return NULL;
    return Py_BuildValue("(y#y#LN)", f->text.items ? (const char *)f->text.items : "", (Py_ssize_t)f->text.count,
                         f->kept.items ? (const char *)f->kept.items : "", (Py_ssize_t)(f->kept.count * sizeof(Kept)), lines, numbers);
}

/* sift(text, kept, line, sounds, plan, runs) -> (text, kept, lines folded, numbers); line: the current one behind the block;
   runs: the lines at which it is known that another run has begun */
static PyObject *folds_sift(PyObject *self, PyObject *args) {
    Folds *f = (Folds *)self;
    PyObject *text_object, *kept_object;
    Asked asked;
    unsigned long long line;
    char *text, *kept;
    Py_ssize_t text_length, kept_length;
    if (!PyArg_ParseTuple(args, "SSKOOy#", &text_object, &kept_object, &line, &asked.sounds, &asked.plan, &asked.runs, &asked.runs_length)) return NULL;
    if (asked.runs_length % (Py_ssize_t)sizeof(u64)) { PyErr_SetString(PyExc_ValueError, "runs are lines of eight bytes each"); return NULL; }
    if (PyBytes_AsStringAndSize(text_object, &text, &text_length) || PyBytes_AsStringAndSize(kept_object, &kept, &kept_length)) return NULL;
    if (f->busy) { PyErr_SetString(PyExc_RuntimeError, "these folds are at work in another thread"); return NULL; }
    size_t count = (size_t)kept_length / sizeof(Kept);
    Kept *records = malloc(count * sizeof *records + 1); /* a bytes object need not lie as records want it */
    if (!records) return PyErr_NoMemory();
    memcpy(records, kept, count * sizeof *records);
    for (size_t k = 0; k < count; k++)
        if ((u64)records[k].offset + records[k].length > (u64)text_length) {
            free(records);
            PyErr_SetString(PyExc_IndexError, "a record is outside of the text");
            return NULL;
        }
    long long lines = 0;
    f->busy = 1;
    f->text.count = f->kept.count = f->readings.numbers.count = 0;
    asked.thread = PyEval_SaveThread();
    int status = sift(f, (const u8 *)text, records, count, line, &asked, &lines);
    PyEval_RestoreThread(asked.thread);
    f->busy = 0;
    free(records);
    if (status) { if (!PyErr_Occurred()) PyErr_NoMemory(); return NULL; }
    return folds_result(f, lines);
}

/* close(sounds, plan) -> the same, of the lines that wait, and the line that was folded last */
static PyObject *folds_close(PyObject *self, PyObject *args) {
    Folds *f = (Folds *)self;
    Asked asked = {0};
    long long lines = 0;
    if (!PyArg_ParseTuple(args, "OO", &asked.sounds, &asked.plan)) return NULL;
    if (f->busy) { PyErr_SetString(PyExc_RuntimeError, "these folds are at work in another thread"); return NULL; }
    f->busy = 1;
    f->text.count = f->kept.count = f->readings.numbers.count = 0;
    asked.thread = PyEval_SaveThread();
    int status = release(f, 1, 1, &asked, &lines);
    finish_line(f, &lines);
    f->state.line = 0;
    if (!status) status = let_go(f, &lines);
    PyEval_RestoreThread(asked.thread);
    f->busy = 0;
    if (status) { if (!PyErr_Occurred()) PyErr_NoMemory(); return NULL; }
    return folds_result(f, lines);
}

/* table() -> [(first, last, lines, folded, text of the last), ...] of what folded */
static PyObject *folds_table(PyObject *self, PyObject *unused) {
    Folds *f = (Folds *)self;
    PyObject *list = PyList_New(0);
    (void)unused;
    for (size_t k = 0; list && k < f->folds.count; k++) {
        const Fold *fold = (const Fold *)f->folds.items + k;
        if (!fold->folded) continue;
        const Sample *sample = (const Sample *)f->samples.items + fold->sample;
        PyObject *row = Py_BuildValue("(KKKKy#)", (unsigned long long)fold->first, (unsigned long long)fold->last,
                                      (unsigned long long)fold->count, (unsigned long long)fold->folded,
                                      (const char *)sample->text, (Py_ssize_t)sample->length);
        if (!row || PyList_Append(list, row)) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

/* runs() -> (how many, [first line, ...] of the latest) of the runs behind the first one */
static PyObject *folds_runs(PyObject *self, PyObject *unused) {
    const Folds *f = (Folds *)self;
    PyObject *list = PyList_New(0);
    (void)unused;
    for (size_t k = 0; list && k < f->runs.count; k++) {
        PyObject *line = PyLong_FromUnsignedLongLong(((const u64 *)f->runs.items)[k]);
        if (!line || PyList_Append(list, line)) Py_CLEAR(list);
        Py_XDECREF(line);
    }
    return list ? Py_BuildValue("(IN)", f->state.counted, list) : NULL;
}

static void folds_dealloc(PyObject *self) {
    Folds *f = (Folds *)self;
    PyTypeObject *type = Py_TYPE(self);
    Vector *vectors[] = {&f->folds, &f->ranges, &f->samples, &f->places, &f->who, &f->held, &f->chains, &f->waiting, &f->waiting_text, &f->first, &f->runs, &f->told, &f->masks.out, &f->masks.numbers,
                         &f->loud.out, &f->loud.numbers, &f->text, &f->kept, &f->scratch, &f->heard,
                         &f->readings.plans, &f->readings.readers, &f->readings.known, &f->readings.forms, &f->readings.early,
                         &f->readings.numbers};
    for (size_t k = 0; k < sizeof vectors / sizeof *vectors; k++) free(vectors[k]->items);
    free(f->slots);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef folds_methods[] = {
    {"sift", folds_sift, METH_VARARGS, "sift(text, kept, line, sounds, plan, runs): the kept segments of one block"},
    {"close", folds_close, METH_VARARGS, "close(sounds, plan): the lines that wait, and the one that was folded last"},
    {"state", folds_state, METH_NOARGS, "state(): all that the next line depends on"},
    {"runs", folds_runs, METH_NOARGS, "runs(): how many runs there are behind the first one, and where the latest begin"},
    {"table", folds_table, METH_NOARGS, "table(): what folded"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot folds_slots[] = {
    {Py_tp_init, (void *)folds_init}, {Py_tp_dealloc, (void *)folds_dealloc},
    {Py_tp_new, (void *)PyType_GenericNew}, {Py_tp_methods, folds_methods}, {0, NULL},
};
static PyType_Spec folds_spec = {"diagnose.matching._core.Folds", sizeof(Folds), 0, Py_TPFLAGS_DEFAULT, folds_slots};

/* masked(body, mode) -> (masked text, [(value, slot), ...], what it may sound like) */
static PyObject *masked(PyObject *self, PyObject *args) {
    const char *data;
    Py_ssize_t n;
    int mode;
    Masks m = {.out = {.size = 1}, .numbers = {.size = sizeof(Masked)}};
    (void)self;
    if (!PyArg_ParseTuple(args, "y#i", &data, &n, &mode)) return NULL;
    if (mask(&m, (const u8 *)data, (size_t)n, mode)) { free(m.out.items); free(m.numbers.items); return PyErr_NoMemory(); }
    PyObject *numbers = PyList_New(0), *result = NULL;
    const Masked *all = m.numbers.items;
    for (size_t k = 0; numbers && k < m.numbers.count; k++) {
        PyObject *pair = Py_BuildValue("(dI)", all[k].value, all[k].slot);
        if (!pair || PyList_Append(numbers, pair)) Py_CLEAR(numbers);
        Py_XDECREF(pair);
    }
    if (numbers) result = Py_BuildValue("(y#Oi)", (const char *)m.out.items, (Py_ssize_t)m.length, numbers,
                                        sounding((const u8 *)data, (size_t)n));
    Py_XDECREF(numbers);
    free(m.out.items);
    free(m.numbers.items);
    return result;
}

/* What a line is, whatever its numbers: one pass over a body gives its masked text, its numbers and its words.
 *
 * A mask is typed: a number (its unit stays), a time, an id, a path, quoted prose, a bar; a list of any length is its first
 * numbers and one mask for the others. Words stay as they are, and so do nan and inf: a line in which one of them stands where
 * a number stood is another line. Included by _core.c.
 */
enum { NUMBER_MASK = 1, TIME_MASK, ID_MASK, PATH_MASK, QUOTE_MASK, MORE_MASK, WORD_MASK, BAR_MASK };
#define MOST_SLOTS 256u /* numbers of a line that are told apart; those behind are one with the last */
#define MOST_WORDS 64u  /* words of a line of which each may turn out to vary */
#define LIST 8u         /* numbers in a row that are told apart */
#define LONGEST_QUOTE 8192u

enum { ZERO, SMALL, LARGE, FRACTION }; /* how a number is written, where what its line means may hang on that */
enum { COARSE, WORDY, EXACT };         /* all masks; no path or prose is hidden; only times are masked */
typedef struct { double value; u32 slot; u32 kind; } Masked;
typedef struct { u32 start, end; } Word;
typedef struct {
    Vector out, numbers; /* the masked text, padded for hash_of; Masked */
    size_t length;
    u32 slots, word_count;
    Word words[MOST_WORDS];
    size_t list_end; /* where the list ends that the masked text may end with */
    u32 in_list, between_length;
    u8 between[3]; /* what stands between its numbers */
} Masks;

enum { A_WORD = 1, A_DIGIT = 2, A_HEX = 4, A_PATH = 8, A_FILE = 16, A_CAPITAL = 32, A_HIGH = 64 };
static u8 kinds[256]; /* what a byte may be part of */

static void set_up_kinds(void) {
    for (int c = 0; c < 256; c++) {
        u8 b = (u8)c;
        if (letter(b) || digit(b) || b == '_') kinds[c] |= A_WORD | A_PATH | A_FILE;
        if (digit(b)) kinds[c] |= A_DIGIT | A_HEX;
        if ((u8)((b | 32) - 'a') < 6) kinds[c] |= A_HEX;
        if (b && strchr("/.@=%~+-*&?#", b)) kinds[c] |= A_PATH;
        if (b && strchr("/.-@+~%", b)) kinds[c] |= A_FILE;
        if ((u8)(b - 'A') < 26) kinds[c] |= A_CAPITAL;
        if (b >= 0x80) kinds[c] |= A_HIGH | A_PATH;
    }
}

static inline int word_byte(u8 c) { return kinds[c] & A_WORD; }
static inline int hex(u8 c) { return (kinds[c] & A_HEX) != 0; }

static void put_number(Masks *m, double value, u32 kind) {
    u8 *out = m->out.items;
    size_t between = m->length - m->list_end;
    if (m->in_list == 1 && between && between <= 3) {
        m->between_length = (u32)between;
        memcpy(m->between, out + m->list_end, between);
        m->in_list = 2;
    } else if (m->in_list > 1 && between == m->between_length && !memcmp(m->between, out + m->list_end, between)) m->in_list++;
    else m->in_list = 1;
    if (m->in_list > LIST) {
        m->length = m->list_end;
        while (m->word_count && m->words[m->word_count - 1].end > m->length) m->word_count--; /* one stood between the numbers */
        if (out[m->length - 1] != MORE_MASK) {
            out[m->length++] = MORE_MASK;
            if (m->slots < MOST_SLOTS) m->slots++;
        }
    } else {
        out[m->length++] = NUMBER_MASK;
        if (m->slots < MOST_SLOTS) m->slots++;
    }
    m->list_end = m->length;
    ((Masked *)m->numbers.items)[m->numbers.count++] = (Masked){value, m->slots - 1, kind};
}

/* A mask for text; one that follows its like makes a list of any length of it. */
static void put_mask(Masks *m, u8 mask) {
    u8 *out = m->out.items;
    size_t at = m->length;
    while (at && m->length - at < 3 && (out[at - 1] == ' ' || out[at - 1] == ',' || out[at - 1] == ';')) at--;
    if (at < m->length && at && out[at - 1] == mask) { m->length = at; out[m->length++] = MORE_MASK; }
    else if (at < m->length && at > 1 && out[at - 1] == MORE_MASK && out[at - 2] == mask) m->length = at;
    else out[m->length++] = mask;
}

static size_t digits_at(const u8 *s, size_t n, size_t i) { return skip_digits(s, n, i) - i; }

/* 2026-01-02T03:04:05,678Z   12/31/2025   03:04:05.6   0:00:12   1234567890.123 is none; returns its bytes, 0 for none */
static size_t time_at(const u8 *s, size_t n, size_t i) {
    size_t start = i, d = digits_at(s, n, i);
    if (!d || d > 4) return 0;
    i += d;
    if (i >= n) return 0;
    if ((s[i] == '-' || s[i] == '/') && (d == 4 || (s[i] == '/' && d <= 2))) { /* a date */
        u8 between = s[i];
        size_t e = digits_at(s, n, i + 1), f;
        if (!e || e > 2 || i + 1 + e >= n || s[i + 1 + e] != between) return 0;
        f = digits_at(s, n, i + 2 + e);
        if (!f || f > 4 || (d != 4 && f != 4 && f != 2)) return 0;
        i += 2 + e + f;
        if (i < n && (s[i] == 'T' || s[i] == ' ' || s[i] == '-' || s[i] == '_' || s[i] == ':')) {
            size_t time = time_at(s, n, i + 1);
            if (time) i += 1 + time;
        }
        return i - start;
    }
    if (s[i] != ':' || d > 3) return 0;
    size_t e = digits_at(s, n, i + 1);
    if (e != 2) return 0;
    i += 3;
    if (i < n && s[i] == ':' && digits_at(s, n, i + 1) == 2) i += 3;
    if (i < n && (s[i] == '.' || s[i] == ',') && digits_at(s, n, i + 1)) i += 1 + digits_at(s, n, i + 1);
    if (i < n && s[i] == 'Z') i++;
    else if (i + 4 < n && s[i] == '+' && digits_at(s, n, i + 1) >= 2) {
        i += 1 + digits_at(s, n, i + 1);
        if (i < n && s[i] == ':' && digits_at(s, n, i + 1) == 2) i += 3;
    }
    return i < n && (word_byte(s[i]) || s[i] == ':') ? 0 : i - start;
}

static size_t uuid_at(const u8 *s, size_t n, size_t i) {
    static const u8 groups[] = {8, 4, 4, 4, 12};
    size_t start = i;
    for (int g = 0; g < 5; g++) {
        for (int k = 0; k < groups[g]; k++, i++) if (i >= n || !hex(s[i])) return 0;
        if (g < 4 && (i >= n || s[i++] != '-')) return 0;
    }
    return i < n && word_byte(s[i]) ? 0 : i - start;
}

/* A name of a month or a weekday, short or long: 1 to 12 or 13 to 19; 0 for none. `end`: behind it */
static u32 calendar_at(const u8 *s, size_t n, size_t i, size_t *end) {
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDecMonTueWedThuFriSatSun";
    if (i + 3 > n || !(kinds[s[i]] & A_CAPITAL)) return 0;
    for (u32 k = 0; k < 19; k++) {
        if (memcmp(s + i, names + 3 * k, 3)) continue;
        for (*end = i + 3; *end < n && word_byte(s[*end]);) ++*end;
        return *end - i == 3 || (*end - i > 5 && *end - i < 10 && (k > 11 ? s[*end - 1] == 'y' : strchr("yhrt", s[*end - 1]) != NULL)) ? k + 1 : 0;
    }
    return 0;
}

static size_t blanks_at(const u8 *s, size_t n, size_t i) {
    size_t j = i;
    if (j < n && s[j] == ',') j++;
    while (j < n && blank(s[j])) j++;
    return j - i;
}

/* Sun Jul 10 03:55:15 2005   Jul 10 03:55:15   Thu, 10 Jul 2005 03:55:15 +0000   July 10, 2005 */
static size_t date_at(const u8 *s, size_t n, size_t i) {
    size_t at = i, end, digits, month = 0, year = 0, day = 0, time = 0;
    u32 name = calendar_at(s, n, at, &end);
    if (name > 12) {
        at = end + blanks_at(s, n, end);
        if (at == end) return 0;
        name = at < n && letter(s[at]) ? calendar_at(s, n, at, &end) : 0;
        if (name > 12) return 0;
    } else if (!name) return 0;
    size_t last = at;
    for (int parts = 0; parts < 6 && at < n; parts++) {
        size_t whole;
        if (!month && (name || (name = calendar_at(s, n, at, &end))) && name <= 12) { month = 1; last = end; }
        else if (!time && (whole = time_at(s, n, at)) && s[at + digits_at(s, n, at)] == ':') { time = 1; last = at + whole; }
        else if ((digits = digits_at(s, n, at)) && (at + digits == n || !word_byte(s[at + digits]))) {
            if (digits <= 2 && !day) day = 1;
            else if (digits == 4 && !year && (s[at] == '1' || s[at] == '2')) year = 1;
            else break;
            last = at + digits;
        } else if (time && !year && at + 3 < n && (kinds[s[at]] & A_CAPITAL) && (kinds[s[at + 1]] & A_CAPITAL)) { /* CEST */
            size_t j = at;
            while (j < n && (kinds[s[j]] & A_CAPITAL)) j++;
            if (j - at > 4 || j + 5 > n || !blank(s[j]) || digits_at(s, n, j + 1) != 4) break;
            last = j;
        } else break;
        size_t between = blanks_at(s, n, last);
        if (!between) break;
        at = last + between;
    }
    return month && day && (time || year) ? last - i : 0;
}

/* c4:b3:01:bd:b5:2e   fe80::c6b3:1ff   0000:3b:00.0: groups of hexadecimal digits */
static size_t colons_at(const u8 *s, size_t n, size_t i) {
    size_t start = i, groups = 0, digits = 0, pairs = 0, first = 0, doubled = 0;
    for (;;) {
        size_t length = 0;
        for (; i < n && hex(s[i]) && length < 9; i++, length++) digits += digit(s[i]);
        if (length > 4 && (groups || length != 8)) return 0;
        if (!groups++) first = length;
        pairs += length == 2;
        if (!length) doubled++;
        if (i >= n || s[i] != ':' || (i + 1 < n && !hex(s[i + 1]) && s[i + 1] != ':')) break;
        i++;
    }
    if (groups == 3 && pairs == 2 && (first == 4 || first == 8)) {
        if (i + 1 < n && s[i] == '.' && digit(s[i + 1])) i += 2;
    } else if (!((groups == 6 && pairs == 6) || (groups == 8 && !doubled) || (doubled == 1 && groups > 3)) || !digits) return 0;
    return i < n && word_byte(s[i]) ? 0 : i - start;
}

/* 10.1.2.3:4567   2.1.0   2.1.0+cu118: what has two points is no number */
static size_t dotted_at(const u8 *s, size_t n, size_t i) {
    size_t start = i, parts = 0;
    for (;;) {
        size_t d = digits_at(s, n, i);
        if (!d) break;
        i += d;
        parts++;
        if (i + 1 < n && s[i] == '.' && digit(s[i + 1])) { i++; continue; }
        break;
    }
    if (parts < 3) return 0;
    if (i + 1 < n && (s[i] == ':' || s[i] == '+') && word_byte(s[i + 1])) for (i++; i < n && word_byte(s[i]);) i++;
    return i - start;
}

/* Behind a run of word bytes */
static inline size_t word_end(const u8 *s, size_t n, size_t i) {
    while (i < n && (kinds[s[i]] & (A_WORD | A_HIGH))) i++;
    return i;
}

/* The run of word bytes s[i] to s[j]: a word as it is, an id, or a word with numbers in it. */
static size_t put_word(Masks *m, const u8 *s, size_t i, size_t j, int mode) {
    size_t length = j - i, digits = 0;
    u8 *out = m->out.items + m->length;
    for (size_t k = 0; k < length; k++) { out[k] = s[i + k]; digits |= kinds[s[i + k]] & A_DIGIT; }
    if (!digits || mode == EXACT) {
        if (!digits) {
            if ((length == 8 || length == 16 || length == 32) && mode != EXACT) {
                size_t hexes = 0;
                while (hexes < length && hex(s[i + hexes])) hexes++;
                if (hexes == length) { put_mask(m, ID_MASK); return j; }
            }
            if (m->word_count < MOST_WORDS) m->words[m->word_count++] = (Word){(u32)m->length, (u32)(m->length + length)};
        }
        m->length += length;
        return j;
    }
    size_t runs = 0, hexes = 0;
    u8 before = 0;
    for (size_t k = i; k < j; k++) {
        u8 kind = kinds[s[k]];
        runs += (kind & ~before & A_DIGIT) != 0;
        hexes += (kind & A_HEX) != 0;
        before = kind;
    }
    if ((hexes == length && length >= 7) || (length >= 10 && runs >= 3)) { put_mask(m, ID_MASK); return j; }
    out = m->out.items;
    while (i < j) {
        if (!digit(s[i])) { out[m->length++] = s[i++]; continue; }
        double value;
        size_t d = digits_at(s, j, i);
        number(s + i, d, &value);
        m->in_list = 0;
        put_number(m, value, value == 0 ? ZERO : d <= 3 ? SMALL : LARGE);
        i += d;
    }
    m->in_list = 0;
    return j;
}

static size_t put_figure(Masks *m, const u8 *s, size_t n, size_t i, int mode) {
    size_t length, hexes = skip_digits(s, n, i);
    u8 *out = m->out.items, behind = hexes < n ? s[hexes] : 0;
    while (hexes < n && hex(s[hexes])) hexes++;
    if (hexes < n && s[hexes] == ':' && mode != EXACT && !(i && word_byte(s[i - 1])) && (length = colons_at(s, n, i))) {
        put_mask(m, ID_MASK);
        return i + length;
    }
    if ((behind == ':' || behind == '-' || behind == '/') && (length = time_at(s, n, i))) { put_mask(m, TIME_MASK); return i + length; }
    if (mode == EXACT) {
        size_t j = i;
        while (j < n && (word_byte(s[j]) || s[j] == '.' || s[j] == '-' || s[j] == '+')) j++;
        memcpy(out + m->length, s + i, j - i);
        m->length += j - i;
        return j;
    }
    if ((behind == '.' && (length = dotted_at(s, n, i))) || (hexes - i == 8 && (length = uuid_at(s, n, i)))) { put_mask(m, ID_MASK); return i + length; }
    if (s[i] == '0' && i + 2 < n && (s[i + 1] | 32) == 'x' && hex(s[i + 2])) {
        for (i += 2; i < n && hex(s[i]);) i++;
        put_mask(m, ID_MASK);
        return i;
    }
    double value;
    length = number(s + i, n - i, &value);
    if (s[i + length - 1] == '.' && i + length < n && letter(s[i + length])) length--; /* node41.example.com */
    size_t end = i + length, whole = skip_digits(s, n, i);
    int alone = m->length && (out[m->length - 1] == ',' || out[m->length - 1] == '[' || out[m->length - 1] == '(');
    if (end == whole && whole - i <= 3 && !alone) { /* 1,234,567 */
        size_t j = end;
        while (j + 3 < n && s[j] == ',' && digits_at(s, n, j + 1) == 3) { value = value * 1000 + (s[j + 1] - '0') * 100 + (s[j + 2] - '0') * 10 + (s[j + 3] - '0'); j += 4; }
        if (j > end) {
            end = whole = j;
            if (end + 1 < n && s[end] == '.' && digit(s[end + 1])) end = skip_digits(s, n, end + 1);
        }
    }
    if (end < n && word_byte(s[end])) { /* a unit, or an id that begins with a digit */
        size_t j = end, digits = 0, hexes = 1;
        for (; j < n && word_byte(s[j]); j++) { digits += digit(s[j]); hexes &= hex(s[j]); }
        if (end == whole && digits && (j - i >= 8 || hexes)) { put_mask(m, ID_MASK); return j; }
        if (end == whole && hexes && j - i >= 7) { put_mask(m, ID_MASK); return j; }
    }
    put_number(m, value, value == 0 ? ZERO : end > whole ? FRACTION : whole - i <= 3 ? SMALL : LARGE);
    if (end < n && word_byte(s[end])) {
        if (digit(s[end])) return end;
        while (end < n && word_byte(s[end]) && !digit(s[end])) out[m->length++] = s[end++];
    }
    return end;
}

/* Prose between quotation marks: where it ends, or 0 when a name stands there, a key, or a request ("GET /v1 HTTP/1.1"). */
static size_t prose_at(const u8 *s, size_t n, size_t i) {
    size_t j = i + 1, blanks = 0;
    while (j < n && kinds[s[j]] & A_CAPITAL) j++;
    if (j > i + 3 && j + 1 < n && s[j] == ' ' && s[j + 1] == '/') return 0;
    j = i + 1;
    size_t most = n - i < LONGEST_QUOTE ? n : i + LONGEST_QUOTE;
    for (; j < most && (s[j] != s[i] || (s[i] == '\'' && j + 1 < n && word_byte(s[j + 1]))); j++) {
        if (s[j] == '\\' && j + 1 < most) j++;
        blanks += blank(s[j]);
    }
    if (j >= most || !blanks) return 0;
    size_t after = j + 1;
    while (after < n && blank(s[after])) after++;
    return after < n && s[after] == ':' ? 0 : j + 1;
}

static size_t path_at(const u8 *s, size_t n, size_t i) {
    size_t j = i, letters = 0;
    for (; j < n && (kinds[s[j]] & A_PATH); j++) letters += (size_t)letter(s[j]);
    while (j > i && (s[j - 1] == '.' || s[j - 1] == '=')) j--;
    return letters && j > i + 2 ? j : 0;
}

/* crypto/asn1/x_spki.o: some/words are none, and neither is train/loss.mean=1 */
static size_t file_at(const u8 *s, size_t n, size_t i) {
    size_t j = i, slashes = 0, point = 0;
    for (; j < n && (kinds[s[j]] & A_FILE); j++) {
        if (s[j] == '/') { slashes++; point = 0; }
        else if (s[j] == '.') point = j + 1;
    }
    if (!slashes || !point || point == j || j - point > 6 || !letter(s[point])) return 0;
    for (size_t k = point; k < j; k++) if (!word_byte(s[k])) return 0;
    return j < n && (s[j] == '=' || s[j] == ':') ? 0 : j;
}

static size_t bar_at(const u8 *s, size_t n, size_t i) { /* U+2500 to U+25FF, and the blanks between */
    size_t end = i;
    while (i + 2 < n && ((s[i] == 0xe2 && s[i + 1] >= 0x94 && s[i + 1] <= 0x97) || (end > i && blank(s[i])))) {
        if (blank(s[i])) { i++; continue; }
        end = i += 3;
    }
    return i < n && s[i] == '|' ? i : end;
}

static size_t empty_bar_at(const u8 *s, size_t n, size_t i) { /* 0%|          | */
    size_t j = i + 1;
    while (j < n && s[j] == ' ') j++;
    return j > i + 3 && j < n && s[j] == '|' ? j : 0;
}

/* The masked text of a body: 0, or -1 for no memory. */
static int mask(Masks *m, const u8 *s, size_t n, int mode) {
    m->out.count = m->numbers.count = 0;
    m->length = m->list_end = 0;
    m->slots = m->word_count = m->in_list = 0;
    if (!grow(&m->out, n + 64) || !grow(&m->numbers, n / 2 + 8)) return -1;
    u8 *out = m->out.items;
    for (size_t i = 0; i < n;) {
        u8 c = s[i];
        int inside = i && word_byte(s[i - 1]);
        size_t end;
        if (letter(c) || c == '_') {
            size_t j = word_end(s, n, i + 1);
            u8 behind = j < n ? s[j] : 0;
            if (inside || mode == EXACT) behind = 0;
            if ((behind == ':' && hex(c) && (end = colons_at(s, n, i))) || (behind == '-' && j - i == 8 && (end = uuid_at(s, n, i)))) {
                put_mask(m, ID_MASK);
                i += end;
            } else if (kinds[c] & A_CAPITAL && !inside && (behind == ' ' || behind == ',' || mode == EXACT) && (end = date_at(s, n, i))) {
                put_mask(m, TIME_MASK);
                i += end;
            } else if (mode == COARSE && behind && kinds[behind] & A_FILE && (end = file_at(s, n, i))) { put_mask(m, PATH_MASK); i = end; }
            else i = put_word(m, s, i, j, mode);
        } else if (c == ' ' || (c >= 9 && c <= 13)) {
            if (!m->length || out[m->length - 1] != ' ') out[m->length++] = ' ';
            i++;
        } else if (digit(c)) i = put_figure(m, s, n, i, mode);
        else if (mode != EXACT && (c == '-' || c == '+' || c == '.') && (!inside || (c == '-' && s[i - 1] == '_')) && i + 1 < n
                   && (digit(s[i + 1]) || (s[i + 1] == '.' && i + 2 < n && digit(s[i + 2]))) && !(i && s[i - 1] == c)) {
            double value;
            size_t length = number(s + i, n - i, &value);
            if (!length) { out[m->length++] = c; i++; continue; }
            put_number(m, value, value == 0 ? ZERO : c == '.' ? FRACTION : LARGE);
            i += length;
        } else if (mode == COARSE && c == '/' && (!inside || (i > 2 && s[i - 1] == '/')) && (end = path_at(s, n, i))) {
            put_mask(m, PATH_MASK);
            i = end;
        } else if (mode == COARSE && (c == '"' || c == '\'') && !inside && (end = prose_at(s, n, i))) {
            put_mask(m, QUOTE_MASK);
            i = end;
        } else if (mode != EXACT && c == 0xe2 && (end = bar_at(s, n, i)) > i) { put_mask(m, BAR_MASK); i = end; }
        else if (c >= 0x80) i = put_word(m, s, i, word_end(s, n, i + 1), mode);
        else if (mode != EXACT && c == '|' && i && s[i - 1] == '%' && i + 3 < n && s[i + 1] == ' ' && (end = empty_bar_at(s, n, i))) {
            out[m->length++] = '|';
            put_mask(m, BAR_MASK);
            i = end;
        } else if (mode != EXACT && i + 2 < n && s[i + 1] == c && s[i + 2] == c) { /* a rule, a bar of signs */
            while (i < n && s[i] == c) i++;
            out[m->length++] = c;
            out[m->length++] = MORE_MASK;
        } else { out[m->length++] = c < 9 ? ' ' : c; i++; }
    }
    while (m->length && out[m->length - 1] == ' ') m->length--;
    memset(out + m->length, 0, 16);
    return 0;
}

/* ------------------------------------------------------------------------------------- what might sound like a failure */

enum { MAY_SOUND = 1, MAY_BE_DUMP = 2 };
/* Beginnings of all that diagnosis/likeness.py looks for, and more: who finds none of them need not ask it. They are lower-case
   and stand for any case; no word byte may stand in place of a blank, before it or behind it; a capital stands for itself, inside a
   word too. Behind the bar: what dumps of stacks and flight recorders begin with. */
static const char *const stems[] = {
    "Error", "Exception", "Failure", "Fault", "Panic", "Timeout", "Interrupt", "Failed", "NotReady", "Evicted", "Lost",
    "Unreachable", "Deleted", "Killed", "BackOff", "Uncaught", "Eviction", "Exceeded", "Unhealthy", "Unschedulable", "Exhausted",
    "Preempted", "Expired", "Denied", "Abort", "SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE", "SIGKILL", "[e]", " overflow", " err", " fail", " fault", " panic",
    " timeout", " interrupt", " evict", " lost ", " unreach", " crit", " alert", " emerg", " e/", " fatal", " abort", " kill",
    " crash", " cannot", " can't", " could", " unable", " unrecover", " denied", " refused", " reject", " timed", " time-out",
    " time out", " times out", " times-out", " timesout", " not found", " no such", " invalid", " corrupt", " terminat", " segfault", " segmentation", " core dump",
    " not respond", " out of", " oom", " exceed", " insufficient", " exhaust", " disconnect", " unavailable", " unhealthy",
    " preempt", " cancel", " undefined", " unexpected", " illegal", " unsupported", " not supported", " does not exist",
    " doesn't exist", " hung ", " hang", " stuck", " stalled", " deadlock", " dead ", " missing", " abnormal", " fallen",
    " no route", " retry count", " blocked for", " unresponsive", " assertion", " revoked", " expire", " reclaimed", " bad ",
    " broken", " stopping", " shutting", " not ready", " notready", " sever", " goroutine", " unhandled", " caused by", " exit",
    " return", " ended", " finished", " died ", " caught", " received", " nonzero", " non-zero", " giving up", " gave up",
    " not enough", " isn", " no longer", " not operational", " not healthy", " not up", " out-of", " compromised", " unbound",
    " rate limit", " no more", " no free", " no disk", " no space", " no room", " full", " down ", " suspended", " waiting for", " reset", " reboot", " power-cycle", " power cycle",
    " fehler", " fehlgeschlagen", " erreur", "éch", "Éch", "ош", "Ош", "ОШ", "оШ",
    "错误", "失败", "异常", "无法", "超时", "崩溃", "拒绝", "中断", "不存在", "找不到", "没有那个文件", "内存不足", "空间不足",
    "已杀死", "权限不够", "エラー", "失敗", "例外が",
    "|", "(most recent call", "full thread dump ", "pytorch flight recorder of ", "peer_d", "thread 0x", "(lwp ", "tid ", "#0 ",
    "communicators...", "INCOMPLETE", "MISMATCH", "thread 1", "thread 2", "thread 3", "thread 4", "thread 5", "thread 6",
    "thread 7", "thread 8", "thread 9",
};
#define STEMS (sizeof stems / sizeof *stems)
static u8 stem_heads[1 << 16], stem_next[STEMS + 1]; /* by the first two bytes: the first stem, then the next of the same, by 1 */

static void set_up_stems(void) {
    for (size_t k = STEMS; k > 0; k--) {
        const u8 *stem = (const u8 *)stems[k - 1];
        if (*stem == '|') continue;
        stem += *stem == ' ';
        u32 head = (u32)(*stem | (letter(*stem) ? 32 : 0)) << 8 | (stem[1] | (letter(stem[1]) ? 32 : 0));
        stem_next[k] = stem_heads[head];
        stem_heads[head] = (u8)k;
    }
}

static inline u8 lower(u8 c) { return (u8)(c - 'A') < 26 ? c | 32 : c; }

/* Whether a word of a dump, of which s[j] is the end, begins one: programs that write of threads and tasks use the same words.
   "Thread 12 (" and "Thread 0x7f (" of many, "TID 12:" of eu-stack. */
static int begins_dump(const u8 *stem, const u8 *s, size_t n, size_t j) {
    if (stem[0] != 't') return 1;
    while (j < n && (digit(s[j]) || letter(s[j]))) j++;
    if (stem[1] == 'h') return j + 1 < n && s[j] == ' ' && s[j + 1] == '(';
    while (n && (s[n - 1] == ' ' || s[n - 1] == '\r' || s[n - 1] == '\n')) n--;
    return n && s[n - 1] == ':';
}

static int sounding(const u8 *s, size_t n) {
    static size_t dumps;
    if (!dumps) for (size_t k = 0; k < STEMS; k++) if (*stems[k] == '|') dumps = k + 1;
    int found = 0;
    for (size_t i = 0; i < 4 && i + 1 < n; i++) /* E0123 10:00:00   C12-31 */
        if ((s[i] == 'E' || s[i] == 'F' || s[i] == 'C') && (digit(s[i + 1]) || s[i + 1] == ' ')) found |= MAY_SOUND;
    u8 before = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        u8 kind = kinds[s[i]];
        int inside = before & kind & A_WORD && !(kind & A_CAPITAL); /* no stem begins here */
        before = kind;
        if (inside) continue;
        for (u8 k = stem_heads[(u32)lower(s[i]) << 8 | lower(s[i + 1])]; k; k = stem_next[k]) {
            const u8 *stem = (const u8 *)stems[k - 1];
            if (*stem == ' ' && (stem++, i && word_byte(s[i - 1]))) continue;
            int exact = (u8)(*stem - 'A') < 26;
            size_t j = exact ? 0 : 2;
            while (stem[j] && i + j < n && (exact ? s[i + j] : lower(s[i + j])) == (u8)stem[j]) j++;
            if (stem[j] == ' ' && !stem[j + 1] && !(i + j < n && word_byte(s[i + j]))) j++;
            if (stem[j]) continue;
            if (k <= dumps) found |= MAY_SOUND;
            else if (begins_dump(stem, s, n, i + j)) found |= MAY_BE_DUMP;
        }
    }
    return found;
}

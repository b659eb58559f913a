/* A long line -> the same line with its long lists shortened: the first entries and the last one stay, and how many are between.
 *
 * The keys that a checkpoint lacks, or the tokens of a prompt, are thousands of entries on one line. An entry is a quoted text or a
 * plain word or number, and commas stand between two. An entry that may sound like a failure, and one that is nan or inf, ends a
 * list, so it stays. The result is never longer than the line. Included by _core.c.
 */
#define LONG_LINE 2048u /* bytes of a line that is not shortened */
#define LISTED 32u      /* so many entries are a list */
#define SHOWN 8u        /* so many of the first ones stay */
#define LONGEST_ENTRY 200u

static inline int plain(u8 c) { return !blank(c) && !strchr(",;:=()[]{}<>'\"", c); } /* a zero is none */

/* Behind the entry that begins at s[i]: 'text', "text" or plain; i for none */
static size_t entry_end(const u8 *s, size_t n, size_t i) {
    size_t most = n - i < LONGEST_ENTRY ? n : i + LONGEST_ENTRY, j = i;
    if (i < n && (s[i] == '\'' || s[i] == '"')) {
        for (j = i + 1; j < most && s[j] != s[i]; j++) if (s[j] == '\\') j++;
        return j < most ? j + 1 : i;
    }
    while (j < most && plain(s[j])) j++;
    return j < most || j == n ? j : i;
}

/* Behind the comma and the blanks that may follow; i where there is none */
static size_t comma_end(const u8 *s, size_t n, size_t i) {
    if (i >= n || s[i] != ',') return i;
    for (i++; i < n && blank(s[i]);) i++;
    return i;
}

static int not_finite(const u8 *s, size_t n) {
    static const char infinity[] = "infinity";
    if (n && (*s == '-' || *s == '+')) { s++; n--; }
    if (n == 3 && lower(s[0]) == 'n') return lower(s[1]) == 'a' && lower(s[2]) == 'n';
    size_t k = 0;
    while (k < n && k < 8 && lower(s[k]) == (u8)infinity[k]) k++;
    return k == n && (n == 3 || n == 8);
}

/* A run of entries */
typedef struct { size_t count, shown, last, end; } Listed; /* where the first ones end, where the last one begins, and its end */

static Listed list_at(const u8 *s, size_t n, size_t i) {
    Listed list = {0, i, i, i};
    for (size_t at = i;;) {
        size_t end = entry_end(s, n, at);
        if (end == at || not_finite(s + at, end - at) || sounding(s + at, end - at) & MAY_SOUND) return list;
        list.last = at;
        list.end = end;
        if (++list.count == SHOWN) list.shown = end;
        at = comma_end(s, n, end);
        if (at == end) return list;
    }
}

/* The shortened line into `to`, which has room for n bytes; its length */
static size_t shortened(const u8 *s, size_t n, u8 *to) {
    size_t length = 0;
    for (size_t i = 0; i < n;) {
        Listed list = list_at(s, n, i);
        if (list.count >= LISTED) {
            memcpy(to + length, s + i, list.shown - i);
            length += list.shown - i;
            length += (size_t)sprintf((char *)to + length, ", [... %zu more ...], ", list.count - SHOWN - 1);
            i = list.last;
        }
        size_t end = list.end > i ? list.end : i + 1;
        if (list.end <= i) while (end < n && plain(s[end - 1]) && plain(s[end])) end++;
        memcpy(to + length, s + i, end - i);
        length += end - i;
        i = end;
    }
    return length;
}

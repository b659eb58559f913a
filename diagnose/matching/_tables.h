/* Hash tables of fixed entries in a vector, with open addressing: they are copied and compared as one string of bytes. Included by
 * _core.c.
 */
/* A key will be looked for soon. */
static inline void expect(const Vector *table, u64 key) {
    if (table->items) __builtin_prefetch((const char *)table->items + ((size_t)key & (table->count - 1)) * table->size);
}

/* Tables of fixed entries that begin with their key: the entry of a key, made when `make`; NULL where there is none */
static void *entry_of(Vector *table, size_t *count, u64 key, size_t most, int make) {
    if (!table->items) {
        if (!make) return NULL;
        table->items = calloc(64, table->size);
        if (!table->items) return NULL;
        table->count = table->room = 64;
    }
    char *items = table->items;
    size_t mask = table->count - 1, at = (size_t)key & mask;
    for (; *(u64 *)(void *)(items + at * table->size); at = (at + 1) & mask)
        if (*(u64 *)(void *)(items + at * table->size) == key) return items + at * table->size;
    if (!make || *count >= most) return NULL;
    if ((*count + 1) * 2 > table->count) {
        Vector wide = {calloc(table->count * 2, table->size), table->count * 2, table->count * 2, table->size};
        if (!wide.items) return NULL;
        for (size_t k = 0; k < table->count; k++) {
            const char *old = items + k * table->size;
            u64 its = *(const u64 *)(const void *)old;
            if (!its) continue;
            size_t to = (size_t)its & (wide.count - 1);
            while (*(u64 *)(void *)((char *)wide.items + to * wide.size)) to = (to + 1) & (wide.count - 1);
            memcpy((char *)wide.items + to * wide.size, old, wide.size);
        }
        free(items);
        *table = wide;
        return entry_of(table, count, key, most, make);
    }
    *(u64 *)(void *)(items + at * table->size) = key;
    ++*count;
    return items + at * table->size;
}

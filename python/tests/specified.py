"""The order of epochs and of global batches, written from docs/formats.md alone."""

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def permutation(n, seed, epoch):
    state, keys = mix(seed) ^ mix((epoch + GOLDEN) & MASK), []
    for _ in range(8):
        state = (state + GOLDEN) & MASK
        keys.append(mix(state))
    half = next(bits for bits in range(1, 33) if n <= 1 << (2 * bits))
    low = (1 << half) - 1

    def at(value):
        while True:
            left, right = value >> half, value & low
            for key in keys:
                left, right = right, left ^ (mix((right + key) & MASK) & low)
            value = left << half | right
            if value < n:
                return value

    return [at(position) for position in range(n)]


def in_blocks(n, seed, epoch, block_items):
    blocks = -(-n // block_items)
    return [
        item
        for block in permutation(blocks, seed, epoch)
        for item in range(block * block_items, min((block + 1) * block_items, n))
    ]


def in_pages(pages, seed, epoch, open_pages):
    """`pages` has the page of each item, and None for an item without a page."""
    last = max((page for page in pages if page is not None), default=0) + 1
    pages = [last if page is None else page for page in pages]
    distinct = sorted(set(pages))
    shuffled = [distinct[at] for at in permutation(len(distinct), seed, epoch)]
    order = []
    for group, first in enumerate(range(0, len(shuffled), open_pages)):
        opened = shuffled[first : first + open_pages]
        items = [item for page in opened for item in range(len(pages)) if pages[item] == page]
        places = permutation(len(items), mix(seed ^ mix(group + 1)), epoch)
        order += [items[place] for place in places]
    return order


def jump(key, count):
    home, following = 0, 0
    while following < count:
        home = following
        key = (key * 2862933555777941757 + 1) & MASK
        following = ((home + 1) << 31) // ((key >> 33) + 1)
    return home


def sizes_of(items, batch, world):
    if items == batch:
        return [batch * (rank + 1) // world - batch * rank // world for rank in range(world)]
    return [-(-items // world)] * world


def global_batches(order, batch, world, *, drop_last=False, nodes=1, item_bytes=1):
    """Returns the shares of the ranks in each batch."""
    found = []
    for start in range(0, len(order), batch):
        items = order[start : start + batch]
        if drop_last and len(items) < batch:
            break
        sizes = sizes_of(len(items), batch, world)
        items = items + [order[at % len(order)] for at in range(sum(sizes) - len(items))]
        if nodes > 1:
            items = by_node(items, sizes, nodes, len(order), item_bytes)
        shares = []
        for size in sizes:
            shares.append(items[:size])
            items = items[size:]
        found.append(shares)
    return found


def by_node(items, sizes, nodes, n, item_bytes):
    of_node = len(sizes) // nodes
    room = [sum(sizes[node * of_node : (node + 1) * of_node]) for node in range(nodes)]
    block = max(1, min((4 << 20) // item_bytes, n // 1024))
    homes = []
    for item in items:
        home = jump(mix(item // block + 1), nodes)
        if room[home] == 0:
            home = None
        else:
            room[home] -= 1
        homes.append(home)
    for at, home in enumerate(homes):
        if home is None:
            homes[at] = next(node for node in range(nodes) if room[node] > 0)
            room[homes[at]] -= 1
    return [
        item
        for node in range(nodes)
        for item, home in zip(items, homes, strict=True)
        if home == node
    ]

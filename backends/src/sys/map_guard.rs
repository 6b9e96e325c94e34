//! Keeps a process alive when a mapped file is truncated, or its device fails, during a copy.
//!
//! The kernel answers such a load with `SIGBUS`. A handler, installed with the first mapping and
//! chained to the one that was there, looks the address up in a table of guarded mappings. If the
//! address is there, the handler marks the mapping as damaged and puts a page of zeros where the
//! fault was, so that the copy can continue. The copying code looks at the mark afterwards and
//! discards the bytes. All other faults go to the earlier handler.
//!
//! So a guarded mapping may only be copied from. A slice of it would show the zeros.
//!
//! The mark is set before the zeros appear. A second thread that meets the zeros without a fault
//! of its own therefore also finds the mark.
//!
//! A program may replace the handler at any time (`faulthandler.enable()` of Python does). The guard
//! checks for that every few milliseconds, and nothing is copied while another handler is installed.
//! Putting this one back in front would be wrong: the other one may call it in turn, and the two
//! would pass a signal back and forth forever.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use memmap2::Mmap;

/// A mapping in the handler's table for as long as this lives.
#[derive(Debug)]
pub(crate) struct MapGuard {
    entry: &'static GuardEntry,
}

impl MapGuard {
    /// Must be dropped before the mapping is.
    pub(crate) fn new(map: &Mmap) -> Self {
        install_handler();
        let start = map.as_ptr().addr();
        Self { entry: GuardEntry::claim(start, start + map.len()) }
    }

    /// Returns `false` when the process has replaced the handler: then a plain copy is not safe.
    #[allow(clippy::unused_self, reason = "other platforms have a guard without a handler")]
    pub(crate) fn is_in_force(&self) -> bool {
        LAST_LOOK.is_installed(clock_ms())
    }

    /// Returns `true` once a load from the mapping has faulted: the bytes cannot be trusted any more.
    pub(crate) fn is_damaged(&self) -> bool {
        self.entry.damaged.load(Ordering::SeqCst)
    }
}

impl Drop for MapGuard {
    fn drop(&mut self) {
        // The end goes first: an entry with an end of 0 matches no address.
        self.entry.end.store(0, Ordering::SeqCst);
        self.entry.start.store(0, Ordering::SeqCst);
        self.entry.claimed.store(false, Ordering::SeqCst);
    }
}

/// One mapping. Entries are recycled and never freed, so the handler can walk them at any time.
#[derive(Debug)]
struct GuardEntry {
    claimed: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    damaged: AtomicBool,
}

impl GuardEntry {
    const fn free() -> Self {
        Self {
            claimed: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            damaged: AtomicBool::new(false),
        }
    }

    fn claim(start: usize, end: usize) -> &'static Self {
        let mut chunk: &'static Chunk = &FIRST_CHUNK;
        loop {
            for entry in &chunk.entries {
                if !entry.claimed.swap(true, Ordering::SeqCst) {
                    entry.damaged.store(false, Ordering::SeqCst);
                    entry.start.store(start, Ordering::SeqCst);
                    entry.end.store(end, Ordering::SeqCst);
                    return entry;
                }
            }
            chunk = chunk.next_or_new();
        }
    }

    fn contains(&self, address: usize) -> bool {
        let end = self.end.load(Ordering::SeqCst);
        let start = self.start.load(Ordering::SeqCst);
        // Read again: the entry may have been recycled between the two loads.
        (start..end).contains(&address) && self.end.load(Ordering::SeqCst) == end
    }
}

struct Chunk {
    entries: [GuardEntry; 64],
    next: AtomicPtr<Chunk>,
}

static FIRST_CHUNK: Chunk = Chunk::empty();

impl Chunk {
    const fn empty() -> Self {
        Self { entries: [const { GuardEntry::free() }; 64], next: AtomicPtr::new(ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Self> {
        // SAFETY: only `next_or_new` stores here, and what it stores is leaked.
        unsafe { self.next.load(Ordering::SeqCst).as_ref() }
    }

    fn next_or_new(&self) -> &'static Self {
        if let Some(next) = self.next() {
            return next;
        }
        let fresh = Box::into_raw(Box::new(Self::empty()));
        let swap =
            self.next.compare_exchange(ptr::null_mut(), fresh, Ordering::SeqCst, Ordering::SeqCst);
        match swap {
            // SAFETY: `fresh` is now the list's, and the list is never freed.
            Ok(_) => unsafe { &*fresh },
            Err(other) => {
                // SAFETY: `fresh` was not stored anywhere.
                drop(unsafe { Box::from_raw(fresh) });
                // SAFETY: `other` was stored by another thread on this same path.
                unsafe { &*other }
            }
        }
    }
}

/// The earlier action. Unset until the handler is installed.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

fn our_handler() -> libc::sighandler_t {
    let handler: Handler = on_sigbus;
    handler as libc::sighandler_t
}

/// Installs the handler once, and looks whether it is still there.
fn install_handler() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        PAGE_BYTES.store(super::page_bytes(), Ordering::SeqCst);
        with_sigbus_blocked(|| {
            // SAFETY: an all-zero sigaction is valid; the handler below is async-signal-safe.
            let previous = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = our_handler();
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigemptyset(&raw mut action.sa_mask);
                let mut previous: libc::sigaction = std::mem::zeroed();
                // One call, so that a handler which another thread installs meanwhile is not lost.
                libc::sigaction(libc::SIGBUS, &raw const action, &raw mut previous);
                previous
            };
            let _ = PREVIOUS.set(previous);
        });
    });
    LAST_LOOK.look(clock_ms());
}

/// Runs `body` while a `SIGBUS` that is sent to this thread waits: the handler could not continue
/// without what `body` has yet to write down.
fn with_sigbus_blocked(body: impl FnOnce()) {
    // SAFETY: an all-zero signal set is valid memory to write a set to, and all pointers are to
    // live sets.
    unsafe {
        let (mut sigbus, mut old): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigemptyset(&raw mut sigbus);
        libc::sigaddset(&raw mut sigbus, libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const sigbus, &raw mut old);
        body();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, ptr::null_mut());
    }
}

fn is_handler_installed() -> bool {
    // SAFETY: an all-zero sigaction is valid, and a null new action only queries.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut action);
        action
    };
    action.sa_sigaction == our_handler()
}

static LAST_LOOK: Look = Look(AtomicU64::new(0));

/// When the process was last asked for its handler, and the answer. Asking is a system call (220 ns
/// where a warm read of 4 KiB takes 800), so the answer holds for one tick of the clock.
struct Look(AtomicU64);

impl Look {
    fn is_installed(&self, now_ms: u64) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        if last >> 1 == now_ms { last & 1 == 1 } else { self.look(now_ms) }
    }

    fn look(&self, now_ms: u64) -> bool {
        let is_installed = is_handler_installed();
        self.0.store(now_ms << 1 | u64::from(is_installed), Ordering::Relaxed);
        is_installed
    }
}

/// The time of a clock that ticks every 1 to 10 ms and is read in 6 ns, where there is one.
fn clock_ms() -> u64 {
    #[cfg(target_os = "linux")]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC_COARSE;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid to write to, and the clock exists.
    unsafe { libc::clock_gettime(CLOCK, &raw mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Async-signal-safe: atomics and one `mmap`, no allocation, no lock.
extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid `siginfo_t` to an `SA_SIGINFO` handler.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // One that was sent by `kill` or `raise` has no address.
    let is_sent = code <= 0;
    if is_sent || !patch_guarded(address) {
        // SAFETY: the arguments are those of the kernel.
        unsafe { call_previous(signal, info, context, is_sent) };
    }
}

/// Puts a page of zeros under a faulting address of a guarded mapping. Returns false if the address
/// is in no guarded mapping.
fn patch_guarded(address: usize) -> bool {
    let mut chunk = Some(&FIRST_CHUNK);
    while let Some(here) = chunk {
        for entry in &here.entries {
            if entry.contains(address) {
                entry.damaged.store(true, Ordering::SeqCst);
                return map_zero_page(address);
            }
        }
        chunk = here.next();
    }
    false
}

fn map_zero_page(address: usize) -> bool {
    let page_bytes = PAGE_BYTES.load(Ordering::SeqCst);
    let page = ptr::without_provenance_mut(address & !(page_bytes - 1));
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page lies in a guarded mapping that is alive (a thread is loading from it), is
    // read-only and stays mapped; its owner unmaps the whole range in the end.
    let mapped = unsafe { libc::mmap(page, page_bytes, libc::PROT_READ, flags, -1, 0) };
    mapped != libc::MAP_FAILED
}

/// # Safety
/// The arguments must be those of the signal that is being handled.
unsafe fn call_previous(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    is_sent: bool,
) {
    let Some(previous) = PREVIOUS.get() else {
        // Another thread has installed the handler just now and not yet written down what was there
        // before. The load that has faulted is tried again after this; a sent signal comes again.
        if is_sent {
            // SAFETY: raising a signal is async-signal-safe.
            unsafe { libc::raise(signal) };
        }
        return;
    };
    let handler = previous.sa_sigaction;
    if is_sent && handler == libc::SIG_IGN {
        return;
    }
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // A synchronous fault cannot be ignored: take our handler away and let it fault again.
        // SAFETY: the default action is always valid.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        if is_sent {
            // It would not come again by itself.
            // SAFETY: raising a signal is async-signal-safe.
            unsafe { libc::raise(signal) };
        }
        return;
    }
    if previous.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: an action with SA_SIGINFO holds a function of this type.
        let call: Handler = unsafe { std::mem::transmute(handler) };
        call(signal, info, context);
    } else {
        // SAFETY: an action without SA_SIGINFO holds a function of this type.
        let call: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
        call(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The handler would put zeros into memory that belongs to another by then.
    #[test]
    fn the_handler_does_not_find_a_mapping_whose_guard_is_gone() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1).unwrap();
        // SAFETY: nothing loads from the mapping, which is only an address here.
        let map = unsafe { Mmap::map(&file) }.unwrap();
        let address = map.as_ptr().addr();
        let guard = MapGuard::new(&map);
        assert!(guard.entry.contains(address) && !guard.entry.contains(address + 1));
        let entry = guard.entry;
        drop(guard);
        assert!(!entry.contains(address));
        assert!(!patch_guarded(address));
    }

    /// The handler may walk the table at any time, so an entry is used again and never freed.
    #[test]
    fn entries_are_used_again() {
        let address = |entry: &GuardEntry| std::ptr::from_ref(entry).addr();
        let is_of_the_table = |wanted: usize| {
            let chunks = std::iter::successors(Some(&FIRST_CHUNK), |chunk| chunk.next());
            chunks.flat_map(|chunk| &chunk.entries).any(|entry| address(entry) == wanted)
        };
        // More than a chunk has, at addresses that no load can fault at.
        let guards: Vec<MapGuard> =
            (0..200).map(|_| MapGuard { entry: GuardEntry::claim(1, 1) }).collect();
        let entries: Vec<usize> = guards.iter().map(|guard| address(guard.entry)).collect();
        drop(guards);
        assert!(entries.into_iter().all(is_of_the_table));
    }
}

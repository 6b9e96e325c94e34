//! Keeps a process alive when a mapped file is truncated, or its device fails, under a load.
//!
//! The kernel answers such a load with `SIGBUS`. A handler, installed with the first mapping and
//! chained to whatever was there, looks the address up in a table of our mappings. If it is one
//! of ours it marks the mapping as damaged and puts a page of zeros where the fault was, so that
//! the copy goes on; whoever copies looks at the mark afterwards and throws the bytes away.
//!
//! The mark is set before the zeros appear. A second thread that meets the zeros without a fault
//! of its own therefore also finds the mark.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use memmap2::Mmap;

/// A mapping in the handler's table for as long as this lives.
#[derive(Debug)]
pub(crate) struct MapGuard {
    entry: &'static Entry,
    in_force: bool,
}

impl MapGuard {
    /// Must be dropped before the mapping is.
    pub(crate) fn new(map: &Mmap) -> Self {
        let in_force = install_handler();
        let start = map.as_ptr().addr();
        Self { entry: Entry::claim(start, start + map.len()), in_force }
    }

    /// False when the process has replaced the handler: then a plain copy is not safe.
    pub(crate) fn is_in_force(&self) -> bool {
        self.in_force
    }

    /// True once a load from the mapping has faulted: the bytes cannot be trusted any more.
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
struct Entry {
    claimed: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    damaged: AtomicBool,
}

impl Entry {
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
    entries: [Entry; 64],
    next: AtomicPtr<Chunk>,
}

static FIRST_CHUNK: Chunk = Chunk::empty();

impl Chunk {
    const fn empty() -> Self {
        Self { entries: [const { Entry::free() }; 64], next: AtomicPtr::new(ptr::null_mut()) }
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

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Installs the handler once; true when it is the process's `SIGBUS` handler now.
fn install_handler() -> bool {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
    let handler = handler as libc::sighandler_t;
    INSTALLED.get_or_init(|| {
        PAGE_BYTES.store(super::page_bytes(), Ordering::SeqCst);
        // The old action is kept before ours can run and want it.
        let _ = PREVIOUS.set(current_action());
        // SAFETY: an all-zero sigaction is valid; the handler below is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
        }
    });
    current_action().sa_sigaction == handler
}

fn current_action() -> libc::sigaction {
    // SAFETY: an all-zero sigaction is valid, and a null new action only queries.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut action);
        action
    }
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
    if is_sent || !patch_ours(address) {
        // SAFETY: the arguments are those the kernel gave us.
        unsafe { call_previous(signal, info, context, is_sent) };
    }
}

/// Puts a page of zeros under a faulting address of ours.
fn patch_ours(address: usize) -> bool {
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
    // SAFETY: the page lies in a mapping of ours that is alive (a thread is loading from it), is
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
    let previous = PREVIOUS.get();
    let handler = previous.map_or(libc::SIG_DFL, |action| action.sa_sigaction);
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
    let with_info = previous.is_some_and(|action| action.sa_flags & libc::SA_SIGINFO != 0);
    if with_info {
        // SAFETY: an action with SA_SIGINFO holds a function of this type.
        let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(handler) };
        call(signal, info, context);
    } else {
        // SAFETY: an action without SA_SIGINFO holds a function of this type.
        let call: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
        call(signal);
    }
}

//! The bound on the memory of a model's history, by what is truly allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use homing::history::{BYTES_MAX, Ended, History};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_full_history_stays_within_its_bound() {
    let before = HELD.load(Ordering::Relaxed);
    let mut history = Box::new(History::default());
    let mut most = 0;
    for tick in 1..=20_000_u64 {
        for first_byte_s in [0.001, 0.5, 30.0, 3600.0, 1e6] {
            let first_byte_s = Some(first_byte_s);
            history.note(&Ended {
                routed: true,
                first_byte_s,
                prompt: Some(1),
                parked_s: Some(1.0),
                ..Ended::default()
            });
        }
        most = most.max(HELD.load(Ordering::Relaxed) - before);
        history.tick(1_000_000_000 + 10 * tick, tick);
    }
    assert!(most <= BYTES_MAX, "{most} bytes of at most {BYTES_MAX}");
    assert!(most > BYTES_MAX / 2, "the bound says little: {most} bytes of at most {BYTES_MAX}");
}

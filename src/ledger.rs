//! Ledgers of storages: how many bytes are alive, of what class and on what device, and the most there were.
//!
//! A storage tells the ledgers it stands in when it goes, and when its size changes; nobody has to look for it.

use crate::storage::Witness;
use crate::{Device, DeviceKind, Storage};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// How many classes of storages a ledger tells apart.
pub const CLASSES: usize = 8;

/// Bytes by class: of many storages, each of which may have as many as 64 bits can say.
pub type Bytes = [u128; CLASSES];

/// What a ledger says of a device.
#[derive(Clone, Debug)]
pub struct Account {
    /// The device.
    pub device: Device,
    /// What is alive.
    pub now: Bytes,
    /// What was alive when most was, of the moments that were [marked](Ledger::mark).
    pub peak: Bytes,
}

impl Account {
    fn add(&mut self, class: u8, bytes: u64) {
        if let Some(sum) = self.now.get_mut(usize::from(class)) {
            *sum += u128::from(bytes);
        }
    }

    fn remove(&mut self, class: u8, bytes: u64) {
        if let Some(sum) = self.now.get_mut(usize::from(class)) {
            *sum -= u128::from(bytes);
        }
    }

    fn mark(&mut self) {
        if self.now.iter().sum::<u128>() > self.peak.iter().sum() {
            self.peak = self.now;
        }
    }
}

struct Entry {
    bytes: u64,
    /// The position of the account.
    account: usize,
    class: u8,
}

#[derive(Default)]
struct Book {
    live: HashMap<usize, Entry>,
    accounts: Vec<Account>,
    unit: u64,
}

/// A ledger.
#[derive(Default)]
pub struct Ledger {
    book: Mutex<Book>,
}

impl Ledger {
    /// An empty ledger that counts the storages of GPUs in multiples of `unit` bytes, as their allocators do.
    #[must_use]
    pub fn new(unit: u64) -> Arc<Self> {
        let book = Book {
            unit,
            ..Book::default()
        };
        Arc::new(Self {
            book: Mutex::new(book),
        })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a storage, or says of what class it is from now on.
    pub fn note(self: &Arc<Self>, storage: &Storage, class: u8) {
        if self.book().change(storage.id(), class) {
            return;
        }
        storage.tell(Arc::downgrade(self) as Weak<dyn Witness>);
        self.book().enter(storage, class);
    }

    /// Enters a storage, unless it stands there already.
    pub fn note_new(self: &Arc<Self>, storage: &Storage, class: u8) {
        if self.book().live.contains_key(&storage.id()) {
            return;
        }
        storage.tell(Arc::downgrade(self) as Weak<dyn Witness>);
        self.book().enter(storage, class);
    }

    /// Compares what is alive on each device with the most there was.
    pub fn mark(&self) {
        self.book().accounts.iter_mut().for_each(Account::mark);
    }

    /// What the ledger says, by device.
    #[must_use]
    pub fn accounts(&self) -> Vec<Account> {
        self.book().accounts.clone()
    }

    /// The bytes of a storage that stands here.
    #[must_use]
    pub fn bytes_of(&self, storage: &Storage) -> Option<u64> {
        self.book().live.get(&storage.id()).map(|e| e.bytes)
    }
}

impl Witness for Ledger {
    fn gone(&self, id: usize) {
        let mut book = self.book();
        if let Some(e) = book.live.remove(&id)
            && let Some(account) = book.accounts.get_mut(e.account)
        {
            account.remove(e.class, e.bytes);
        }
    }

    fn resized(&self, id: usize, nbytes: usize) {
        let mut book = self.book();
        let Book {
            live,
            accounts,
            unit,
        } = &mut *book;
        if let Some(e) = live.get_mut(&id)
            && let Some(account) = accounts.get_mut(e.account)
        {
            let bytes = counted(nbytes, account.device, *unit);
            account.remove(e.class, e.bytes);
            account.add(e.class, bytes);
            e.bytes = bytes;
        }
    }
}

/// The bytes that are counted for a storage on a device.
fn counted(nbytes: usize, device: Device, unit: u64) -> u64 {
    let bytes = nbytes as u64;
    if device.kind == DeviceKind::Cuda && unit > 1 {
        bytes.next_multiple_of(unit)
    } else {
        bytes
    }
}

impl Book {
    fn enter(&mut self, storage: &Storage, class: u8) {
        let device = storage.device();
        let known = self.accounts.iter().position(|a| a.device == device);
        let at = known.unwrap_or_else(|| {
            self.accounts.push(Account {
                device,
                now: [0; CLASSES],
                peak: [0; CLASSES],
            });
            self.accounts.len() - 1
        });
        let bytes = counted(storage.nbytes(), device, self.unit);
        self.accounts[at].add(class, bytes);
        let entry = Entry {
            bytes,
            account: at,
            class,
        };
        self.live.insert(storage.id(), entry);
    }

    /// Gives a storage another class; false if it does not stand here.
    fn change(&mut self, id: usize, class: u8) -> bool {
        let Some(e) = self.live.get_mut(&id) else {
            return false;
        };
        if let Some(account) = self.accounts.get_mut(e.account) {
            account.remove(e.class, e.bytes);
            account.add(class, e.bytes);
        }
        e.class = class;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_follows_what_lives() {
        let ledger = Ledger::new(512);
        let a = Storage::meta(100);
        ledger.note(&a, 0);
        let b = Storage::hollow(100, Device::cuda(0));
        ledger.note(&b, 1);
        ledger.mark();
        ledger.note(&a, 2);
        drop(b);
        let [meta, cuda] = &ledger.accounts()[..] else {
            panic!("two devices")
        };
        assert_eq!((meta.now[0], meta.now[2], meta.peak[0]), (0, 100, 100));
        assert_eq!((cuda.now[1], cuda.peak[1]), (0, 512));
        a.resize(40).unwrap();
        assert_eq!(ledger.accounts()[0].now[2], 40);
        drop(ledger);
        drop(a);
    }
}

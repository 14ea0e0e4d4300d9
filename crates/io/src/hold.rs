//! An interface in use by one program, which restores it afterwards. Linux only.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

use crate::moved::Moved;
use crate::network::Network;
use crate::sys::interface::{Interface, Joins};

/// Bytes of the longest note.
const MOST: u64 = 1 << 20;

/// Where holders keep their notes.
const FOLDER: &str = "/run/fairlane";

/// Receive offloads by the names that notes have for them.
const OFFLOADS: [(&str, Joins); 2] = [("gro", Joins::Kernel), ("lro", Joins::Device)];

/// An exclusive claim on an interface, honoured by all processes that use this type.
///
/// # Exclusive use
///
/// The hold is a lock on a file in `/run/fairlane` that is named by the network namespace (its cookie, which is unique
/// until the next boot) and the interface's index in it. It therefore survives a rename of the interface, does not
/// conflict with an interface of the same name in another namespace, and is released by the kernel however the process
/// ends. A lock by an abstract socket would need no folder, but any user could take it first. Programs that see
/// different folders `/run` do not see each other's holds.
///
/// # Restored settings
///
/// Offloads that [`single_frames`](Self::single_frames) turns off are recorded in the file first, and dropping the hold
/// restores them. If the process is killed the record stays: the next holder restores the recorded offloads, if the
/// record is of the current boot.
///
/// # Handover
///
/// A hold can be handed from one process to another without a gap: the successor gets the locked file
/// ([`file`](Self::file)), [shares](Self::share) it, and [owns](Self::own) it when its predecessor
/// [leaves](Self::leave) it.
///
/// ```
/// use fairlane_io::{Hold, socket_of_holder};
///
/// let folder = std::env::temp_dir().join(format!("holds-{}", std::process::id()));
/// let hold = Hold::take_in(&folder, "lo")?;
/// assert_eq!(hold.complaint(), None);
///
/// // No other process can take it meanwhile, nor this process twice.
/// let busy = Hold::take_in(&folder, "lo").unwrap_err();
/// println!("{busy}");
/// drop(hold);
/// assert!(Hold::take_in(&folder, "lo").is_ok());
/// std::fs::remove_dir(&folder)?;
///
/// // Where a daemon that has an interface can be asked to hand it over.
/// match socket_of_holder("lo") {
///     Ok(path) => println!("{}", path.display()),
///     Err(error) => println!("{error}"),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Hold {
    name: String,
    interface: Interface,
    note: Option<Note>,
    complaint: Option<String>,
    turned_off: Vec<Joins>,
    /// Addresses and routes that another interface has meanwhile.
    moved: Option<Moved>,
    /// The same of a deleted interface of this name.
    kept: Option<Moved>,
    /// Another process restores the changed settings.
    is_others: bool,
}

impl Hold {
    /// Takes the interface of this name in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// Each is a sentence: `NotFound` if there is no such interface, `ResourceBusy` if another
    /// process has it, or this one. A folder in which nothing can be noted is no error: the
    /// interface may be another's then, and [`complaint`](Self::complaint) says so.
    pub fn take(name: &str) -> io::Result<Hold> {
        Hold::take_in(Path::new(FOLDER), name)
    }

    /// The same with the notes in `folder`, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// As for [`take`](Self::take).
    pub fn take_in(folder: &Path, name: &str) -> io::Result<Hold> {
        let interface = Interface::find(name).map_err(|error| explain(name, error))?;
        let (note, complaint) = match Note::open(folder, name, &interface) {
            Ok(note) => (Some(note), None),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Err(error),
            Err(error) => {
                let complaint = format!(
                    "cannot write to {} ({error}): no other program may use {name}, and its receive \
                     offloads stay off if this process is killed",
                    folder.display()
                );
                (None, Some(complaint))
            }
        };
        let mut hold = Hold {
            name: name.to_owned(),
            interface,
            note,
            complaint,
            turned_off: Vec::new(),
            moved: None,
            kept: None,
            is_others: false,
        };
        if let Some(note) = &hold.note {
            for by in note.left_off() {
                // Gone with an older driver, perhaps.
                let _ = hold.interface.join_segments(by, true);
            }
            if let Some(moved) = note.left_moved(&note.former) {
                moved.give_back(name);
            }
            if let Ok(kept) = fs::read_to_string(&note.kept) {
                hold.kept = note.left_moved(&kept);
            }
            if let Some(kept) = hold.kept.take_if(|kept| !kept.is_elsewhere()) {
                kept.give_back(name);
                let _ = fs::remove_file(&note.kept);
            }
            hold.note_changes(name)?;
        }
        Ok(hold)
    }

    /// Shares a hold of another process by its [file](Self::file), if there is one. Until the hold is
    /// [owned](Self::own) it restores nothing here.
    ///
    /// # Errors
    ///
    /// An error message: there is no such interface, or its record cannot be read.
    pub fn share(name: &str, file: Option<File>) -> io::Result<Hold> {
        Hold::share_in(Path::new(FOLDER), name, file)
    }

    fn share_in(folder: &Path, name: &str, file: Option<File>) -> io::Result<Hold> {
        let interface = Interface::find(name).map_err(|error| explain(name, error))?;
        let note = file.map(|file| Note::shared(file, folder, name, &interface));
        let note = note.transpose().map_err(|error| unnoted(name, error))?;
        let turned_off = note.iter().flat_map(Note::left_off).collect();
        Ok(Hold {
            name: name.to_owned(),
            interface,
            note,
            complaint: None,
            turned_off,
            moved: None,
            kept: None,
            is_others: true,
        })
    }

    /// Returns its locked file, for another process to [share](Self::share); `None` where nothing
    /// could be noted.
    ///
    /// # Errors
    ///
    /// There are no descriptors left.
    pub fn file(&self) -> io::Result<Option<File>> {
        let note = self.note.as_ref();
        note.map(|note| note.file.try_clone()).transpose()
    }

    /// Takes over the hold: this process restores the changed settings from now on. Its predecessor must no longer use
    /// it. The returned closure records that in the file, which names the predecessor until then: a file system may be
    /// slow, so that another thread may run it.
    pub fn own(&mut self) -> impl FnOnce() -> io::Result<()> + Send + use<> {
        self.is_others = false;
        let note = self.note.as_ref().map(|note| {
            let text = note.text(&self.name, &self.turned_off, self.moved.as_ref());
            (note.file.try_clone(), text)
        });
        move || match note {
            Some((file, text)) => write(&file?, &text),
            None => Ok(()),
        }
    }

    /// Another process owns it from now on: dropping it here changes nothing.
    pub fn leave(&mut self) {
        self.is_others = true;
    }

    /// Why nothing could be noted, if so: a sentence to warn of.
    pub fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }

    /// Stops coalescing of received segments of one connection, so that each received frame can be transmitted again.
    /// Dropping the hold restores the settings.
    ///
    /// The *kernel's* coalescing (GRO) can be undone, since the kernel describes it: a
    /// [`PacketBackend`](crate::PacketBackend) segments such frames, as the kernel's own bridge would, and needs only
    /// [device coalescing off](Self::single_frames_of_device) (LRO), as that bridge does. An
    /// [`XdpBackend`](crate::XdpBackend) receives frames before the kernel coalesces them, except in [generic
    /// mode](crate::XdpMode::Generic), where it needs both off.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` without the privilege `CAP_NET_ADMIN` if a setting must change. A driver without coalescing
    /// needs no change.
    pub fn single_frames(&mut self, name: &str) -> io::Result<()> {
        self.turn_off(name, &[Joins::Kernel, Joins::Device])
    }

    /// Stops coalescing by the device only.
    ///
    /// # Errors
    ///
    /// As for [`single_frames`](Self::single_frames).
    pub fn single_frames_of_device(&mut self, name: &str) -> io::Result<()> {
        self.turn_off(name, &[Joins::Device])
    }

    /// Moves the IPv4 and IPv6 addresses of the interface, except those of its link alone, and its routes to the
    /// interface `to`; dropping the hold moves them back. Meanwhile the interface neither answers for these addresses
    /// (`arp_ignore`) nor speaks IPv6 (`disable_ipv6`), and both moves are announced to neighbours. If the interface is
    /// gone by then, `to` keeps them, and the next hold of an interface of the same name moves them back.
    ///
    /// # Errors
    ///
    /// A sentence: an interface is not there, something cannot be noted, or the kernel refuses a part. Nothing is changed then.
    pub fn move_addresses(&mut self, name: &str, to: &str) -> io::Result<()> {
        let unmoved = |error: io::Error| {
            let sentence = format!("the addresses of {name} cannot be moved to {to}: {error}");
            io::Error::new(error.kind(), sentence)
        };
        let mut moved = Moved::plan(name, to).map_err(unmoved)?;
        if let Some(kept) = self.kept.take_if(|kept| kept.is_at(to)) {
            moved.join(kept);
        }
        self.moved = Some(moved.clone());
        let done = (self.note_changes(name)).and_then(|()| moved.carry_out(name).map_err(unmoved));
        if done.is_err() {
            moved.give_back(name);
            self.moved = None;
        }
        done
    }

    /// Notes the changes to be restored.
    fn note_changes(&self, name: &str) -> io::Result<()> {
        let Some(note) = &self.note else {
            return Ok(());
        };
        let text = note.text(name, &self.turned_off, self.moved.as_ref());
        write(&note.file, &text).map_err(|error| unnoted(name, error))
    }

    fn turn_off(&mut self, name: &str, joins: &[Joins]) -> io::Result<()> {
        for &by in joins {
            if let Ok(true) = self.interface.joins_segments(by) {
                self.turned_off.push(by);
                self.note_changes(name)?;
                if let Err(error) = self.interface.join_segments(by, false) {
                    self.turned_off.pop();
                    return Err(explain(name, error));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.is_others {
            return;
        }
        for &by in &self.turned_off {
            // The interface may be gone by now, and its offloads with it.
            let _ = self.interface.join_segments(by, true);
        }
        let has_moved = self.moved.is_some() || self.kept.is_some();
        let network = has_moved.then(|| Network::read().ok()).flatten();
        // By the name that it has now.
        let name = network
            .as_ref()
            .and_then(|it| it.name(self.interface.index()));
        let all = [&self.moved, &self.kept].into_iter().flatten();
        match (name, &self.note) {
            (Some(name), _) => all.for_each(|moved| moved.give_back(name)),
            (None, Some(note)) if self.moved.is_some() => {
                let text = note.text(&self.name, &[], self.moved.as_ref());
                let _ = fs::write(&note.kept, text);
            }
            _ => {}
        }
        if let Some(note) = &self.note {
            if name.is_some() {
                let _ = fs::remove_file(&note.kept);
            }
            // While it is locked, so that no other process holds it. A process that opened it meanwhile notices its
            // removal.
            let _ = fs::remove_file(&note.path);
        }
    }
}

/// The locked file of a hold.
#[derive(Debug)]
struct Note {
    file: File,
    path: PathBuf,
    /// Where moved addresses are noted for the next interface of the same name.
    kept: PathBuf,
    /// Which start of the machine this is.
    boot: String,
    /// The previous contents of the file.
    former: String,
}

impl Note {
    fn open(folder: &Path, name: &str, interface: &Interface) -> io::Result<Note> {
        let boot = boot()?;
        own(folder)?;
        let path = path_of(folder, interface)?;
        let kept = path_of_kept(folder, name, interface)?;
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path)?;
            let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
            let mut former = String::new();
            (&mut file).take(MOST).read_to_string(&mut former)?;
            match locked.map_err(io::Error::from) {
                // Its holder has ended meanwhile and removed it.
                Ok(()) if file.metadata()?.nlink() == 0 => {}
                Ok(()) => {
                    return Ok(Note {
                        file,
                        path,
                        kept,
                        boot,
                        former,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(busy(name, value(&former, "pid")));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// That of another process, which has it locked.
    fn shared(file: File, folder: &Path, name: &str, interface: &Interface) -> io::Result<Note> {
        let mut former = String::new();
        (&file).rewind()?;
        (&file).take(MOST).read_to_string(&mut former)?;
        Ok(Note {
            file,
            path: path_of(folder, interface)?,
            kept: path_of_kept(folder, name, interface)?,
            boot: boot()?,
            former,
        })
    }

    /// Returns the offloads that a killed holder left off.
    fn left_off(&self) -> impl Iterator<Item = Joins> {
        let off = match value(&self.former, "boot") {
            Some(boot) if boot == self.boot => value(&self.former, "off").unwrap_or_default(),
            _ => "",
        };
        OFFLOADS
            .into_iter()
            .filter(|(name, _)| off.split(' ').any(|off| off == *name))
            .map(|(_, by)| by)
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Returns the addresses and routes that a former holder had moved, if its record is of the current boot.
    fn left_moved(&self, former: &str) -> Option<Moved> {
        let boot = value(former, "boot");
        boot.filter(|&boot| boot == self.boot)?;
        Moved::of_text(former)
    }

    /// Formats a record: the holder of the interface, and the settings to restore.
    fn text(&self, name: &str, off: &[Joins], moved: Option<&Moved>) -> String {
        let off = OFFLOADS.iter().filter(|(_, by)| off.contains(by));
        let off: Vec<_> = off.map(|&(name, _)| name).collect();
        format!(
            "boot {}\npid {}\ninterface {name}\noff {}\n{}",
            self.boot,
            std::process::id(),
            off.join(" "),
            moved.map(Moved::text).unwrap_or_default()
        )
    }
}

/// Replaces the contents of a record. The file holds the old or the new record at any time, even if this process dies
/// in between: one write covers the old record, and the remainder is truncated. A new file renamed over it would be
/// atomic too, but the lock is on this one.
fn write(mut file: &File, text: &str) -> io::Result<()> {
    if text.len() as u64 > MOST {
        // A start after a crash would read a part of it, and restore nothing.
        let sentence = format!("it would have {} bytes (at most {MOST})", text.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, sentence));
    }
    let former = file.metadata()?.len().min(MOST) as usize;
    let mut whole = text.to_owned();
    whole.extend(std::iter::repeat_n('\n', former.saturating_sub(text.len())));
    file.rewind()?;
    file.write_all(whole.as_bytes())?;
    file.set_len(text.len() as u64)
}

/// Returns which start of the machine this is.
fn boot() -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(boot.trim().to_owned())
}

/// Returns where the note of an interface is.
fn path_of(folder: &Path, interface: &Interface) -> io::Result<PathBuf> {
    Ok(folder.join(format!("{}-{}", interface.namespace()?, interface.index())))
}

/// Returns where addresses are noted that were moved from an interface that was deleted.
fn path_of_kept(folder: &Path, name: &str, interface: &Interface) -> io::Result<PathBuf> {
    Ok(folder.join(format!("{}-{name}.moved", interface.namespace()?)))
}

/// Returns the socket in the folder of notes at which the process that holds the interface of this name,
/// in the calling thread's network namespace, can be asked to hand over. The folder is made if it is not
/// there.
///
/// # Errors
///
/// A sentence: there is no such interface, or no folder that can be trusted.
pub fn socket_of_holder(name: &str) -> io::Result<PathBuf> {
    let interface = Interface::find(name).map_err(|error| explain(name, error))?;
    let folder = Path::new(FOLDER);
    own(folder).map_err(|error| unnoted(name, error))?;
    let path = path_of(folder, &interface).map_err(|error| unnoted(name, error))?;
    Ok(path.with_extension("take-over"))
}

/// Creates the folder, or ensures that no other user can change its contents.
fn own(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    let ours = [0, geteuid().as_raw()].contains(&found.uid());
    if !found.is_dir() || !ours || found.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is no folder that root or this user alone can write to",
        ));
    }
    Ok(())
}

/// Returns the rest of a record's line that begins with `word`.
fn value<'a>(note: &'a str, word: &str) -> Option<&'a str> {
    let mut lines = note.lines();
    lines.find_map(|line| line.strip_prefix(word)?.strip_prefix(' '))
}

fn unnoted(name: &str, error: io::Error) -> io::Error {
    let sentence = format!("changes of {name} cannot be noted in {FOLDER}: {error}");
    io::Error::new(error.kind(), sentence)
}

fn busy(name: &str, pid: Option<&str>) -> io::Error {
    let process = pid.map_or(String::new(), |pid| format!(", process {pid}"));
    io::Error::new(
        io::ErrorKind::ResourceBusy,
        format!(
            "the interface {name} is in use by another Fairlane{process}, and two would send every \
             frame twice: stop that one, or name another interface"
        ),
    )
}

/// Returns the sentence for an error.
fn explain(name: &str, error: io::Error) -> io::Error {
    let (kind, sentence) = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => (
            io::ErrorKind::PermissionDenied,
            format!(
                "to turn off the receive offloads of {name} the privilege CAP_NET_ADMIN is needed: \
                 run as root, or grant it to the program (setcap cap_net_admin+ep)"
            ),
        ),
        Some(libc::ENODEV | libc::ENXIO) => (
            io::ErrorKind::NotFound,
            format!("there is no interface {name} in this network namespace"),
        ),
        _ => (
            error.kind(),
            format!("the receive offloads of {name} cannot be turned off: {error}"),
        ),
    };
    io::Error::new(kind, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{addresses, gateways};
    use crate::{Backend, PacketBackend, packet};
    use etherparse::PacketBuilder;
    use fairlane_netlab::{LabError, Link, Namespace, cable, or_skip, skip_unsupported, veth};
    use std::net::Ipv6Addr;
    use std::process;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    /// A folder of this test's.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Folder {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("fairlane-hold-{}-{number}", process::id());
            Folder(std::env::temp_dir().join(name))
        }

        fn take(&self, link: &Link) -> io::Result<Hold> {
            link.namespace().run(|| Hold::take_in(&self.0, link.name()))
        }

        fn notes(&self) -> Vec<PathBuf> {
            let notes = fs::read_dir(&self.0).unwrap();
            notes.map(|note| note.unwrap().path()).collect()
        }
    }

    #[test]
    fn a_note_that_could_not_be_read_whole_is_refused_and_the_former_one_stays() {
        let folder = Folder::new();
        fs::create_dir_all(&folder.0).unwrap();
        let path = folder.0.join("note");
        fs::write(&path, "off gro\n").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let longest = MOST as usize;
        let refused = write(&file, &"x".repeat(longest + 1)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(fs::read_to_string(&path).unwrap(), "off gro\n");
        write(&file, &"x".repeat(longest)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), MOST);
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn joins(link: &Link) -> bool {
        let interface = link.namespace().run(|| Interface::find(link.name()));
        interface.unwrap().joins_segments(Joins::Kernel).unwrap()
    }

    fn join(link: &Link, on: bool) {
        let interface = link.namespace().run(|| Interface::find(link.name()));
        interface.unwrap().join_segments(Joins::Kernel, on).unwrap();
    }

    const OWN: [(&str, u8); 2] = [("192.0.2.7", 24), ("2001:db8::7", 64)];

    /// Returns an interface `outside` with addresses, and the interface of a router at its other
    /// end.
    fn addressed((host, router): (&Namespace, &Namespace)) -> Result<(Link, Link), LabError> {
        let (outside, far) = veth((host, "outside"), (router, "far"), 1_500)?;
        outside.up()?;
        far.up()?;
        outside.wait_for_carrier()?;
        Ok((outside, far))
    }

    /// A router of this number advertises itself.
    fn advertise(from: &Link, number: u8) {
        let source = format!("fe80::{number}").parse::<Ipv6Addr>().unwrap();
        let all = "ff02::1".parse::<Ipv6Addr>().unwrap();
        let packet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, number], [0x33, 0x33, 0, 0, 0, 1])
            .ipv6(source.octets(), all.octets(), 255)
            .icmpv6_raw(134, 0, [64, 0, 7, 8]);
        let mut frame = Vec::new();
        packet.write(&mut frame, &[0; 8]).unwrap();
        let options = packet::Options::default();
        let sent = from.namespace().run(|| {
            let mut backend = PacketBackend::<Vec<u8>>::open(from.name(), &options)?;
            backend.transmit(&mut [frame].into())
        });
        assert_eq!(sent.unwrap(), 1);
    }

    #[test]
    fn every_default_router_and_the_addresses_of_a_deleted_interface_come_back() {
        let made = || {
            let (host, router) = (Namespace::new()?, Namespace::new()?);
            for namespace in [&host, &router] {
                for which in ["all", "default"] {
                    let key = format!("ipv6/conf/{which}/disable_ipv6");
                    namespace.set_parameter(&key, "0")?;
                }
            }
            let (target, _) = veth((&host, "target"), (&router, "other"), 1_500)?;
            target.up()?;
            let (outside, far) = addressed((&host, &router))?;
            for (address, length) in OWN {
                outside.add_address(address.parse().unwrap(), length)?;
            }
            outside.add_default_route("192.0.2.1".parse().unwrap())?;
            Ok((host, router, outside, far))
        };
        let Some((host, router, mut outside, far)) = or_skip("addresses that move", made()) else {
            return;
        };
        let folder = Folder::new();
        let known = |name: &str| {
            let known = || {
                let mut gateways = gateways(name).unwrap_or_default();
                gateways.sort();
                (addresses(name).unwrap_or_default(), gateways)
            };
            host.run(known)
        };
        let begun = Instant::now();
        while known("outside").1.len() < 3 {
            assert!(begun.elapsed() < Duration::from_secs(10));
            (1..3).for_each(|number| advertise(&far, number));
            std::thread::sleep(Duration::from_millis(5));
        }
        let before = known("outside");
        assert_eq!((before.0.len(), before.1.len()), (2, 3), "{before:?}");
        let take = || Hold::take_in(&folder.0, "outside").unwrap();
        let moved = || {
            let mut hold = take();
            hold.move_addresses("outside", "target").unwrap();
            hold
        };
        // The second time the kernel has both routers in one route.
        for _ in 0..2 {
            let hold = host.run(moved);
            assert_eq!(known("target"), before);
            assert_eq!(known("outside"), Default::default());
            host.run(|| drop(hold));
            assert_eq!(known("outside"), before);
            assert_eq!(known("target"), Default::default());
        }
        for target_is_there in [true, false] {
            let hold = host.run(moved);
            outside.delete().unwrap();
            host.run(|| drop(hold));
            assert_eq!(known("target"), before);
            if !target_is_there {
                Link::find(&host, "target").unwrap().delete().unwrap();
            }
            (outside, _) = addressed((&host, &router)).unwrap();
            if target_is_there {
                let hold = host.run(moved);
                assert_eq!(known("target"), before);
                assert_eq!(known("outside"), Default::default());
                host.run(|| drop(hold));
            } else {
                host.run(|| drop(take()));
            }
            assert_eq!(known("outside"), before);
            assert_eq!(folder.notes(), [""; 0].map(PathBuf::from));
        }
    }

    #[test]
    fn received_segments_are_joined_again_when_it_is_over() {
        let Some((link, _far)) = or_skip("receive offloads", cable(1_500)) else {
            return;
        };
        let folder = Folder::new();
        for before in [true, false] {
            join(&link, before);
            let mut hold = folder.take(&link).unwrap();
            assert_eq!(joins(&link), before);
            hold.single_frames(link.name()).unwrap();
            assert!(!joins(&link));
            drop(hold);
            // A holder that finds it off leaves it off.
            assert_eq!(joins(&link), before);
            assert_eq!(folder.notes(), [""; 0].map(PathBuf::from));
        }
    }

    #[test]
    fn what_the_kernel_joins_is_left_to_it_where_that_is_asked_for() {
        let Some((link, _far)) = or_skip("offloads of a device", cable(1_500)) else {
            return;
        };
        let folder = Folder::new();
        join(&link, true);
        let mut hold = folder.take(&link).unwrap();
        hold.single_frames_of_device(link.name()).unwrap();
        assert!(joins(&link));
    }

    #[test]
    fn one_at_a_time_holds_an_interface_and_the_second_is_told_who_does() {
        let Some((link, far)) = or_skip("one at a time", cable(1_500)) else {
            return;
        };
        let folder = Folder::new();
        let hold = folder.take(&link).unwrap();
        let error = folder.take(&link).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        let sentence = format!(
            "the interface {} is in use by another Fairlane, process {}, and two",
            link.name(),
            process::id()
        );
        assert!(error.to_string().starts_with(&sentence), "{error}");
        // Another interface, in another namespace, perhaps of the same index, is another's.
        let other = folder.take(&far).unwrap();
        drop(hold);
        drop(folder.take(&link).unwrap());
        drop(other);
    }

    #[test]
    fn a_hold_that_is_handed_over_is_never_nobodys_and_puts_right_what_the_first_changed() {
        let Some((link, _far)) = or_skip("a hold that is handed over", cable(1_500)) else {
            return;
        };
        let folder = Folder::new();
        let share = |file| {
            let share = || Hold::share_in(&folder.0, link.name(), file).unwrap();
            link.namespace().run(share)
        };
        join(&link, true);
        let mut first = folder.take(&link).unwrap();
        first.single_frames(link.name()).unwrap();
        // A hold that fails before it is owned changes nothing.
        drop(share(first.file().unwrap()));
        assert!(!joins(&link));
        assert!(folder.take(&link).is_err());

        let mut second = share(first.file().unwrap());
        first.leave();
        second.own()().unwrap();
        drop(first);
        assert!(!joins(&link));
        assert!(folder.take(&link).is_err());
        let note = fs::read_to_string(&folder.notes()[0]).unwrap();
        assert_eq!(value(&note, "off"), Some("gro"), "{note}");
        drop(second);
        assert!(joins(&link));
        assert_eq!(folder.notes(), [""; 0].map(PathBuf::from));
        drop(folder.take(&link).unwrap());
    }

    #[test]
    fn a_note_is_whole_at_any_time_while_it_is_written_anew() {
        let folder = Folder::new();
        fs::create_dir(&folder.0).unwrap();
        let path = folder.0.join("note");
        let file = File::create_new(&path).unwrap();
        let texts = ["boot b\noff \n", "boot b\noff gro lro\n"];
        write(&file, texts[1]).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut torn = None;
                while !over.load(Ordering::Relaxed) && torn.is_none() {
                    let note = fs::read_to_string(&path).unwrap();
                    let said = ["boot", "off"].map(|word| value(&note, word).is_some());
                    torn = (said != [true; 2]).then_some(note);
                }
                torn
            });
            for text in texts.into_iter().cycle().take(20_000) {
                write(&file, text).unwrap();
                if reading.is_finished() {
                    break;
                }
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!(reading.join().unwrap(), None);
        });
        for text in texts {
            write(&file, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn where_nothing_can_be_noted_nothing_is_turned_off() {
        let Some((link, _far)) = or_skip("notes on a full disk", cable(1_500)) else {
            return;
        };
        let folder = Folder::new();
        fs::create_dir(&folder.0).unwrap();
        let run = |program: &str, arguments: &[&str]| {
            let mut command = process::Command::new(program);
            command.args(arguments).arg(&folder.0).status()
        };
        let options = ["-t", "tmpfs", "-o", "size=4k,mode=755", "small"];
        if !run("mount", &options).is_ok_and(|status| status.success()) {
            return skip_unsupported("notes on a full disk", "nothing can be mounted here");
        }
        join(&link, true);
        fs::write(folder.0.join("filler"), [0; 4_096]).unwrap();
        let error = folder.take(&link).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let sentence = format!("changes of {} cannot be noted", link.name());
        assert!(error.to_string().starts_with(&sentence), "{error}");
        assert!(joins(&link));
        assert_eq!(folder.notes(), [folder.0.join("filler")]);
        fs::remove_file(folder.0.join("filler")).unwrap();
        drop(folder.take(&link).unwrap());
        assert!(run("umount", &["-l"]).unwrap().success());
    }

    #[test]
    fn what_a_killed_holder_turned_off_is_turned_on_by_the_next() {
        let Some((link, _far)) = or_skip("a killed holder", cable(1_500)) else {
            return;
        };
        let folder = Folder::new();
        join(&link, true);
        let mut hold = folder.take(&link).unwrap();
        hold.single_frames(link.name()).unwrap();
        // As a process that is killed: the descriptor is closed, and nothing else is done.
        let note = fs::read_to_string(&folder.notes()[0]).unwrap();
        hold.turned_off.clear();
        drop(hold);
        assert!(!joins(&link));
        let leave = |text: String| {
            let path = folder
                .take(&link)
                .unwrap()
                .note
                .as_ref()
                .unwrap()
                .path
                .clone();
            fs::write(path, text).unwrap();
        };
        // A record of an earlier boot: it is not known which process turned the offload off.
        let boot = value(&note, "boot").unwrap();
        leave(note.replace(boot, "another"));
        drop(folder.take(&link).unwrap());
        assert!(!joins(&link));
        for none in ["", "boot", "off gro", "\0\n\n"] {
            leave(none.to_owned());
            drop(folder.take(&link).unwrap());
            assert!(!joins(&link), "{none:?} says nothing");
        }
        leave(note);
        let hold = folder.take(&link).unwrap();
        assert!(joins(&link));
        drop(hold);
        assert!(joins(&link));
    }

    #[test]
    fn a_folder_that_others_can_write_to_holds_nothing() {
        let Some((link, _far)) = or_skip("a folder of others", cable(1_500)) else {
            return;
        };
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new();
        fs::create_dir(&folder.0).unwrap();
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
        let hold = folder.take(&link).unwrap();
        let complaint = hold.complaint().unwrap();
        assert!(complaint.contains(link.name()), "{complaint}");
        assert!(complaint.contains("no folder that root"), "{complaint}");
        assert!(folder.notes().is_empty());
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let error = Hold::take("nosuch0").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("nosuch0"), "{error}");
    }
}

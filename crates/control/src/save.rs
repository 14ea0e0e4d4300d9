//! A configuration written to its file, whole or not at all.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use tempfile::NamedTempFile;

/// The mode of new files, before the user's mask.
const NEW_FILE_MODE: u32 = 0o666;

/// Replaces a file by this text atomically: a reader sees the old text or the new one, also after a power cut. Keeps
/// owner, mode, and a symbolic link that leads to the file.
///
/// # Errors
///
/// The system's error; the file is unchanged then.
pub fn save(path: &Path, text: &str) -> io::Result<()> {
    // The target, if the path is a symbolic link.
    let path = path.canonicalize()?;
    let former = fs::metadata(&path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(former.permissions())?;
    let owner = file.as_file().metadata()?;
    if (owner.uid(), owner.gid()) != (former.uid(), former.gid()) {
        fchown(file.as_file(), Some(former.uid()), Some(former.gid()))?;
    }
    file.as_file().sync_all()?;
    file.persist(&path)?;
    fs::File::open(folder)?.sync_all()
}

/// Creates a file with this text atomically, if the name is free.
///
/// # Errors
///
/// `AlreadyExists` if the name is taken, even by a dangling link; else the system's error. Nothing is created then.
pub fn create(path: &Path, text: &str) -> io::Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Reports a missing folder with the system's error.
    let entries = fs::File::open(folder)?;
    let mut builder = tempfile::Builder::new();
    builder.permissions(fs::Permissions::from_mode(NEW_FILE_MODE));
    // The library's error would name its temporary file.
    let file = builder.tempfile_in(folder);
    let mut file = file.map_err(|error| io::Error::from(error.kind()))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map_err(|error| error.error)?;
    entries.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_file_behind_a_link_is_replaced_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a.toml"), folder.path().join("b.toml"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        save(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert!(link.is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            2,
            "nothing is left"
        );
    }

    #[test]
    fn save_replaces_no_unrelated_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        create(&path("new.toml"), "text").unwrap();
        assert_eq!(fs::read_to_string(path("new.toml")).unwrap(), "text");
        symlink(path("nowhere"), path("link.toml")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        for name in ["new.toml", "link.toml", "folder"] {
            let error = create(&path(name), "other").unwrap_err();
            assert_eq!(
                error.kind(),
                io::ErrorKind::AlreadyExists,
                "{name}: {error}"
            );
        }
        assert_eq!(fs::read_to_string(path("new.toml")).unwrap(), "text");
        assert!(!path("nowhere").exists());
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            3,
            "nothing is left"
        );
        let error = create(&path("none/new.toml"), "text").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_that_cannot_be_written_stays_as_it_is() {
        let error = save(Path::new("/proc/version"), "new").unwrap_err();
        assert!(!error.to_string().is_empty());
        assert!(save(Path::new("/no/such/file"), "new").is_err());
    }
}

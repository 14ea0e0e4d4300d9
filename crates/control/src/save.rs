//! A configuration written back to its file.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

/// Replaces a file by this text, at once and whole: whoever reads meanwhile finds the one or the
/// other, and so does who comes after a power cut. Owner and mode stay.
pub(crate) fn save(path: &Path, text: &str) -> io::Result<()> {
    // The file itself, where the path is a link to it.
    let path = path.canonicalize()?;
    let former = fs::metadata(&path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

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
    fn a_file_that_cannot_be_written_stays_as_it_is() {
        let error = save(Path::new("/proc/version"), "new").unwrap_err();
        assert!(!error.to_string().is_empty());
        assert!(save(Path::new("/no/such/file"), "new").is_err());
    }
}

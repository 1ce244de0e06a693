#!/usr/bin/python3
"""A file system that gives files other names than it was asked for, as FAT, HFS+ and APFS do.

    renaming.py BACKING MOUNTPOINT [FORM]

Letters are stored decomposed (NFD) or in another Unicode FORM, dots and spaces at the end of a name are dropped, and a
name is found whatever the case and the form of its letters. All else is the directory BACKING. `canonical` in
src/names.rs is the same rule.
"""

import errno
import os
import sys
import unicodedata

import fusepy


def stored(name, form):
    """The name that an entry gets."""
    return unicodedata.normalize(form, name.rstrip(". ")) or name


def folded(name):
    """What is the same for all names of an entry."""
    return unicodedata.normalize("NFD", stored(name, "NFD").lower())


class Renaming(fusepy.Operations):
    use_ns = True

    def __init__(self, root, form):
        self.root = root
        self.form = form

    def real(self, path):
        """The path below BACKING: of the entry that is there, or of the one that would be made."""
        found = self.root
        for name in path.split("/"):
            if not name:
                continue
            there = name
            if name != ".":
                wanted = folded(name)
                try:
                    names = os.listdir(found)
                except OSError:
                    names = []
                alike = [other for other in names if folded(other) == wanted]
                there = alike[0] if alike else stored(name, self.form)
            found = found + "/" + there
        return found

    def getattr(self, path, fh=None):
        stat = os.lstat(self.real(path))
        found = {
            key: getattr(stat, key)
            for key in ("st_gid", "st_ino", "st_mode", "st_nlink", "st_size", "st_uid", "st_blocks")
        }
        for key in ("st_atime", "st_ctime", "st_mtime"):
            found[key] = getattr(stat, key + "_ns")
        return found

    def readdir(self, path, fh):
        return [".", ".."] + os.listdir(self.real(path))

    def readlink(self, path):
        return os.readlink(self.real(path))

    def mknod(self, path, mode, dev):
        return os.mknod(self.real(path), mode, dev)

    def mkdir(self, path, mode):
        return os.mkdir(self.real(path), mode)

    def rmdir(self, path):
        return os.rmdir(self.real(path))

    def unlink(self, path):
        return os.unlink(self.real(path))

    # The arguments of libfuse: the new entry, and what it leads to or is another name of.
    def symlink(self, path, target):
        return os.symlink(target, self.real(path))

    def link(self, path, target):
        return os.link(self.real(target), self.real(path), follow_symlinks=False)

    def rename(self, old, new):
        return os.rename(self.real(old), self.real(new))

    def chmod(self, path, mode):
        return os.chmod(self.real(path), mode)

    def chown(self, path, uid, gid):
        uid = -1 if uid == 0xFFFFFFFF else uid
        gid = -1 if gid == 0xFFFFFFFF else gid
        return os.chown(self.real(path), uid, gid, follow_symlinks=False)

    def utimens(self, path, times=None):
        return os.utime(self.real(path), ns=times, follow_symlinks=False)

    def truncate(self, path, length, fh=None):
        return os.truncate(self.real(path) if fh is None else fh, length)

    def create(self, path, mode, fi=None):
        return os.open(self.real(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def open(self, path, flags):
        return os.open(self.real(path), flags & ~(os.O_CREAT | os.O_EXCL))

    def read(self, path, size, offset, fh):
        return os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        return os.pwrite(fh, data, offset)

    def flush(self, path, fh):
        return 0

    def fsync(self, path, datasync, fh):
        return os.fsync(fh)

    def release(self, path, fh):
        return os.close(fh)

    def statfs(self, path):
        stat = os.statvfs(self.root)
        return {
            key: getattr(stat, key)
            for key in ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_frsize", "f_namemax")
        }

    def listxattr(self, *_):
        raise fusepy.FuseOSError(errno.ENOTSUP)

    getxattr = setxattr = removexattr = listxattr


def main():
    backing, point, form = (*sys.argv[1:], "NFD")[:3]
    os.umask(0)
    fusepy.FUSE(
        Renaming(os.path.abspath(backing), form),
        point,
        foreground=True,
        nothreads=True,
        encoding="utf-8",
        use_ino=True,
        entry_timeout=0,
        negative_timeout=0,
        attr_timeout=0,
        default_permissions=True,
        allow_other=True,
        fsname="renaming",
    )


if __name__ == "__main__":
    main()

package receipts

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// hooks are told before of what changes the disk, where they are not nil. An
// error is the call's; errLeaveOut leaves the call out.
type hooks struct {
	disk
	write     func(path string, b []byte, at int64) error
	sync      func(path string) error
	moveTo    func(from, to string) error
	syncOfDir func(folder string) error
}

var errLeaveOut = errors.New("the call is left out")

// SetDisk puts hooks before the real disk; a nil hook is none.
func SetDisk(o *Options, write func(b []byte, at int64) error, sync func() error) {
	h := hooks{disk: realDisk{}}
	if write != nil {
		h.write = func(_ string, b []byte, at int64) error { return write(b, at) }
	}
	if sync != nil {
		h.sync = func(string) error { return sync() }
	}
	o.disk = h
}

// SetTrace tells before of each call that writes, syncs or renames, by its verb
// and the base names of what it is about. An error of before is the call's.
func SetTrace(o *Options, before func(call string) error) {
	o.disk = hooks{
		disk:  realDisk{},
		write: func(path string, _ []byte, _ int64) error { return before("write " + filepath.Base(path)) },
		sync:  func(path string) error { return before("sync " + filepath.Base(path)) },
		moveTo: func(from, to string) error {
			return before("rename " + filepath.Base(from) + " to " + filepath.Base(to))
		},
		syncOfDir: func(folder string) error { return before("sync folder " + filepath.Base(folder)) },
	}
}

// SetNoSync leaves out waiting for the disk.
func SetNoSync(o *Options) {
	leaveOut := func(string) error { return errLeaveOut }
	o.disk = hooks{disk: realDisk{}, sync: leaveOut, syncOfDir: leaveOut}
}

// hooked calls the hook and then the disk.
func hooked(hook, call func() error) error {
	if err := hook(); err == errLeaveOut {
		return nil
	} else if err != nil {
		return err
	}
	return call()
}

func (h hooks) open(path string, flag int, mode fs.FileMode) (file, error) {
	f, err := h.disk.open(path, flag, mode)
	if err != nil {
		return nil, err
	}
	return hookedFile{f, path, h}, nil
}

func (h hooks) rename(from, to string) error {
	if h.moveTo == nil {
		return h.disk.rename(from, to)
	}
	return hooked(func() error { return h.moveTo(from, to) }, func() error { return h.disk.rename(from, to) })
}

func (h hooks) syncDir(folder string) error {
	if h.syncOfDir == nil {
		return h.disk.syncDir(folder)
	}
	return hooked(func() error { return h.syncOfDir(folder) }, func() error { return h.disk.syncDir(folder) })
}

type hookedFile struct {
	file
	path  string
	hooks hooks
}

func (f hookedFile) WriteAt(b []byte, at int64) (n int, err error) {
	if f.hooks.write == nil {
		return f.file.WriteAt(b, at)
	}
	err = hooked(func() error { return f.hooks.write(f.path, b, at) }, func() (err error) {
		n, err = f.file.WriteAt(b, at)
		return err
	})
	return n, err
}

func (f hookedFile) sync() error {
	if f.hooks.sync == nil {
		return f.file.sync()
	}
	return hooked(func() error { return f.hooks.sync(f.path) }, f.file.sync)
}

package receipts

import (
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// SmallDisk is the real disk with so little room that it can be used up: of the
// segments, that is; what else there is takes none. Its calls can be held up.
type SmallDisk struct {
	realDisk
	Reserves bool // it can keep room for a file

	mu    sync.Mutex
	total int64
	other int64 // what others have on it
	takes map[string]int64
	hold  chan struct{} // syncs wait until it is closed
	held  int           // that wait
	fail  error         // of the next sync
	slow  time.Duration // that a look at how much room there is takes
}

const page = 4096

// NewSmallDisk returns one of that many bytes.
func NewSmallDisk(total int64) *SmallDisk {
	return &SmallDisk{Reserves: true, total: total, takes: map[string]int64{}}
}

// On has a log be on the disk.
func (d *SmallDisk) On(o *Options) { o.disk = d }

// Fill has somebody else take all but left bytes.
func (d *SmallDisk) Fill(left int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.other += d.freeLocked() - left
}

// Free has them give back so many.
func (d *SmallDisk) Free(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.other -= n
}

// Hold has syncs wait until the result is called.
func (d *SmallDisk) Hold() (goOn func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	hold := make(chan struct{})
	d.hold = hold
	return func() {
		d.mu.Lock()
		d.hold = nil
		d.mu.Unlock()
		close(hold)
	}
}

// SlowLooks has it take so long to say how much room there is.
func (d *SmallDisk) SlowLooks(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow = took
}

// FailNextSync has one sync fail, and none after it.
func (d *SmallDisk) FailNextSync(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

// Held is how many syncs wait.
func (d *SmallDisk) Held() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held
}

func (d *SmallDisk) freeLocked() int64 {
	free := d.total - d.other
	for _, n := range d.takes {
		free -= n
	}
	return free
}

// growLocked has path take n bytes in whole pages, or as many as there is room for.
func (d *SmallDisk) growLocked(path string, n int64) error {
	n = (n + page - 1) / page * page
	more := n - d.takes[path]
	if more <= 0 {
		return nil
	}
	if free := max(0, d.freeLocked()/page*page); more > free {
		d.takes[path] += free
		return &fs.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}
	}
	d.takes[path] = n
	return nil
}

func (d *SmallDisk) open(path string, flag int, mode fs.FileMode) (file, error) {
	f, err := d.realDisk.open(path, flag, mode)
	if err != nil || len(path) < 6 || path[len(path)-6:] != ".jsonl" {
		return f, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if info, err := os.Stat(path); err == nil {
		d.takes[path] = max(d.takes[path], (info.Size()+page-1)/page*page)
	}
	return &smallFile{f, d, path}, nil
}

func (d *SmallDisk) remove(path string) error {
	d.mu.Lock()
	delete(d.takes, path)
	d.mu.Unlock()
	return d.realDisk.remove(path)
}

type smallFile struct {
	file
	disk *SmallDisk
	path string
}

func (f *smallFile) WriteAt(b []byte, at int64) (int, error) {
	f.disk.mu.Lock()
	full := f.disk.growLocked(f.path, at+int64(len(b)))
	room := f.disk.takes[f.path]
	f.disk.mu.Unlock()
	if full != nil {
		n, err := f.file.WriteAt(b[:max(0, min(int64(len(b)), room-at))], at)
		if err == nil {
			err = full
		}
		return n, err
	}
	return f.file.WriteAt(b, at)
}

func (f *smallFile) sync() error {
	d := f.disk
	d.mu.Lock()
	hold := d.hold
	if hold != nil {
		d.held++
	}
	d.mu.Unlock()
	if hold != nil {
		<-hold
		d.mu.Lock()
		d.held--
		d.mu.Unlock()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fail; err != nil {
		d.fail = nil
		return err
	}
	return nil // what is synced here is read back by this process
}

func (f *smallFile) Truncate(size int64) error {
	f.disk.mu.Lock()
	f.disk.takes[f.path] = (size + page - 1) / page * page
	f.disk.mu.Unlock()
	return f.file.Truncate(size)
}

func (f *smallFile) reserve(n int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if !f.disk.Reserves {
		return syscall.EOPNOTSUPP
	}
	had := f.disk.takes[f.path]
	err := f.disk.growLocked(f.path, n)
	if err != nil {
		f.disk.takes[f.path] = had
	}
	return err
}

func (f *smallFile) free() (free, total int64, err error) {
	f.disk.mu.Lock()
	slow := f.disk.slow
	f.disk.mu.Unlock()
	time.Sleep(slow)
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return max(0, f.disk.freeLocked()), f.disk.total, nil
}

// Left is how much room there is.
func (d *SmallDisk) Left() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.freeLocked()
}

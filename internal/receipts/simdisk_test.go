package receipts

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// sector is what a disk writes whole or not at all.
const sector = 512

// SimDisk is a disk in memory, as one process sees it. What was not synced may be
// lost when the power goes: of each file any of its sectors, of each folder any of
// its names, in any order; see Crash. Each call can be made to fail; see Before.
//
//	d := NewSimDisk()
//	SetSimDisk(&o, d)
//	l, err := Open("/data", o)
//	...
//	after := d.Crash(seed) // or d.Kill(): the process dies and the system does not
//	SetSimDisk(&o, after)
//
// It is safe for concurrent use.
type SimDisk struct {
	// Before, where it is not nil, is told of each call and says what becomes of
	// it. Set it before the disk is used. It may block, and use the disk's other
	// methods: a call that hangs holds no lock.
	Before func(SimCall) SimFault

	store *simStore
	mu    sync.Mutex // of calls and dead
	calls int
	dead  bool
}

// SimCall is what a process asks of the disk.
type SimCall struct {
	N     int    // counted from 0
	Op    string // open, create, mkdir, readdir, stat, rename, remove, syncdir, lock, read, write, truncate, sync, reserve, isat
	Name  string // the base name of what it is about; of a rename, to what
	Path  string
	At    int64  // of a write
	Bytes []byte // of a write

	node *simNode // of a sync
}

func (c SimCall) String() string { return c.Op + " " + c.Name }

// Changes reports whether the call may change what is on the disk.
func (c SimCall) Changes() bool {
	switch c.Op {
	case "create", "mkdir", "rename", "remove", "syncdir", "write", "truncate", "sync", "reserve":
		return true
	}
	return false
}

// SimFault is what becomes of a call. The zero SimFault lets it be.
type SimFault struct {
	// Err is what the call returns. Unless Did, nothing has happened.
	Err error
	Did bool // all the same, it has happened
	// Part, of a write: only so many bytes are written. Without Err that is a
	// short count.
	Part int
	// Hold, where it is not nil, hangs the call until it is closed.
	Hold <-chan struct{}
}

// ErrSimDead is what a process gets that was killed.
var ErrSimDead = fmt.Errorf("the simulated process is dead")

// NewSimDisk returns an empty disk, of endless space.
func NewSimDisk() *SimDisk {
	root := newSimFolder()
	return &SimDisk{store: &simStore{root: root, space: 1 << 62, locks: map[*simNode]*SimDisk{}}}
}

// SetSimDisk has the log use d.
func SetSimDisk(o *Options, d *SimDisk) { o.disk = d }

// simStore is what is on the disk and in the system's memory of it.
type simStore struct {
	mu    sync.Mutex
	root  *simNode
	space int64 // in bytes, for files
	locks map[*simNode]*SimDisk
}

// simNode is a file or a folder.
type simNode struct {
	// Of a file: what a process reads, and of sectors that were written since they
	// were synced all that may be on disk; the last one is what is read.
	data  []byte
	may   map[int64][][]byte
	dirty map[int64]bool // of may: what the next sync writes
	sizes []int64        // that the file may have on disk; none: that of data
	held  int64          // space behind the beginning that is reserved

	// Of a folder: what a process sees, what is on disk, and what was done since.
	names, lasting map[string]*simNode
	since          []simRenaming
}

// simRenaming: node, which may be nil, gets the name to; from is taken away.
type simRenaming struct {
	from, to string
	node     *simNode
}

func newSimFolder() *simNode {
	return &simNode{names: map[string]*simNode{}, lasting: map[string]*simNode{}}
}

func (n *simNode) folder() bool { return n.names != nil }

// Clone returns a disk of its own with all that is on this one, synced or not.
func (d *SimDisk) Clone() *SimDisk {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	known := map[*simNode]*simNode{}
	var clone func(n *simNode) *simNode
	cloneNames := func(names map[string]*simNode) map[string]*simNode {
		c := make(map[string]*simNode, len(names))
		for name, n := range names {
			c[name] = clone(n)
		}
		return c
	}
	clone = func(n *simNode) *simNode {
		if n == nil || known[n] != nil {
			return known[n]
		}
		c := new(simNode)
		known[n] = c
		if n.folder() {
			c.names, c.lasting = cloneNames(n.names), cloneNames(n.lasting)
			for _, r := range n.since {
				c.since = append(c.since, simRenaming{r.from, r.to, clone(r.node)})
			}
			return c
		}
		c.data, c.may, c.dirty, c.sizes, c.held = slices.Clone(n.data), maps.Clone(n.may), maps.Clone(n.dirty), slices.Clone(n.sizes), n.held
		for s, versions := range c.may {
			c.may[s] = slices.Clip(versions) // the versions themselves are never changed
		}
		return c
	}
	return &SimDisk{store: &simStore{root: clone(d.store.root), space: d.store.space, locks: map[*simNode]*SimDisk{}}}
}

// Kill ends the process and returns the disk as the next one sees it: the system
// lives, and what was written is there, though it may not be on disk.
func (d *SimDisk) Kill() *SimDisk {
	d.mu.Lock()
	d.dead = true
	d.mu.Unlock()
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	maps.DeleteFunc(d.store.locks, func(_ *simNode, by *SimDisk) bool { return by == d })
	return &SimDisk{store: d.store}
}

// Crash ends the process and returns the disk as it may be found once the power
// is back. The choice follows from the seed and from what was done; this disk
// stays as it is, so that another seed may be tried.
func (d *SimDisk) Crash(seed uint64) *SimDisk {
	d.mu.Lock()
	d.dead = true
	d.mu.Unlock()
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	choice := &simChoice{Rand: rand.New(rand.NewPCG(seed, 512))}
	choice.mood = choice.IntN(8)
	known := map[*simNode]*simNode{}
	return &SimDisk{store: &simStore{root: choice.folder(d.store.root, known), space: d.store.space, locks: map[*simNode]*SimDisk{}}}
}

// simChoice decides what of all that was not synced is on disk: in some moods
// nothing, in some all, else each thing by itself.
type simChoice struct {
	*rand.Rand
	mood int
}

func (c *simChoice) among(n int) int { // of n versions, the last of which is the newest
	switch c.mood {
	case 0:
		return 0
	case 1:
		return n - 1
	}
	return c.IntN(n)
}

func (c *simChoice) folder(n *simNode, known map[*simNode]*simNode) *simNode {
	names := maps.Clone(n.lasting)
	for _, r := range n.since {
		if c.among(2) == 0 {
			continue
		}
		delete(names, r.from)
		if r.node != nil {
			names[r.to] = r.node
		}
	}
	found := newSimFolder()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n := names[name]
		if known[n] == nil {
			if n.folder() {
				known[n] = c.folder(n, known)
			} else {
				known[n] = c.file(n)
			}
		}
		found.names[name] = known[n]
	}
	found.lasting = maps.Clone(found.names)
	return found
}

func (c *simChoice) file(n *simNode) *simNode {
	size := int64(len(n.data))
	if len(n.sizes) > 0 {
		i := c.among(len(n.sizes))
		size = n.sizes[i]
		if i > 0 && c.mood > 1 && c.IntN(2) == 0 && n.sizes[i-1] < size {
			// As far as it had come, a sector at a time.
			sectors := (size - n.sizes[i-1]) / sector
			size -= c.Int64N(sectors+1) * sector
		}
		if c.mood > 1 && c.IntN(8) == 0 && n.held > size {
			size = min(n.held, size+c.Int64N(4*sector)) // some of what was reserved
		}
	}
	data := make([]byte, size)
	copy(data, n.data)
	for _, s := range slices.Sorted(maps.Keys(n.may)) {
		if s*sector < size {
			copy(data[s*sector:], n.may[s][c.among(len(n.may[s]))])
		}
	}
	return &simNode{data: data}
}

// Dump writes what a process would read into a real folder.
func (d *SimDisk) Dump(folder string) error {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	var dump func(n *simNode, path string) error
	dump = func(n *simNode, path string) error {
		if !n.folder() {
			return os.WriteFile(path, n.data, 0o600)
		}
		if err := os.Mkdir(path, 0o700); err != nil && !os.IsExist(err) {
			return err
		}
		for name, n := range n.names {
			if err := dump(n, filepath.Join(path, name)); err != nil {
				return err
			}
		}
		return nil
	}
	return dump(d.store.root, folder)
}

// Put puts a file there, synced with its name.
func (d *SimDisk) Put(path string, data []byte) {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	n := d.store.root
	for _, name := range simNames(filepath.Dir(path)) {
		if n.names[name] == nil {
			n.names[name] = newSimFolder()
			n.lasting[name] = n.names[name]
		}
		n = n.names[name]
	}
	f := &simNode{data: slices.Clone(data)}
	n.names[filepath.Base(path)], n.lasting[filepath.Base(path)] = f, f
}

// Read returns what a process would read, or nil.
func (d *SimDisk) Read(path string) []byte {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	n, err := d.store.find(path)
	if err != nil || n.folder() {
		return nil
	}
	return slices.Clone(n.data)
}

// WritePart does the first bytes of a write that another disk was asked for.
func (d *SimDisk) WritePart(c SimCall, part int) {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	if n, err := d.store.find(c.Path); err == nil {
		n.write(c.Bytes[:part], c.At)
	}
}

// SetFree leaves so many bytes of space. What a file takes is a multiple of 4,096.
func (d *SimDisk) SetFree(n int64) {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	d.store.space = d.store.used() + n
}

// Free is how much space is left.
func (d *SimDisk) Free() int64 {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	return d.store.space - d.store.used()
}

func (s *simStore) used() (n int64) {
	var add func(*simNode)
	add = func(f *simNode) {
		n += f.takes(int64(len(f.data)))
		for _, f := range f.names {
			add(f)
		}
	}
	add(s.root)
	return n
}

// takes is the space of a file that is size long.
func (n *simNode) takes(size int64) int64 { return (max(size, n.held) + 4095) &^ 4095 }

func simNames(path string) (names []string) {
	for path = filepath.Clean(path); filepath.Dir(path) != path; path = filepath.Dir(path) {
		names = append(names, filepath.Base(path))
	}
	slices.Reverse(names)
	return names
}

func (s *simStore) find(path string) (*simNode, error) {
	n := s.root
	for _, name := range simNames(path) {
		if !n.folder() {
			return nil, syscall.ENOTDIR
		}
		if n = n.names[name]; n == nil {
			return nil, fs.ErrNotExist
		}
	}
	return n, nil
}

func (s *simStore) findFolder(path string) (*simNode, error) {
	n, err := s.find(path)
	if err == nil && !n.folder() {
		err = syscall.ENOTDIR
	}
	return n, err
}

// name is what a folder is told of a change of names.
func (n *simNode) name(r simRenaming) {
	delete(n.names, r.from)
	if r.node != nil {
		n.names[r.to] = r.node
	}
	n.since = append(n.since, r)
}

// call lets Before decide, and then do what is asked.
func (d *SimDisk) call(c SimCall, do func(part int) error) error {
	d.mu.Lock()
	c.N = d.calls
	d.calls++
	d.mu.Unlock()
	c.Name = filepath.Base(c.Path)
	var f SimFault
	if d.Before != nil {
		f = d.Before(c)
	}
	if f.Hold != nil {
		<-f.Hold
	}
	d.mu.Lock()
	dead := d.dead
	d.mu.Unlock()
	if dead {
		return ErrSimDead
	}
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	part := len(c.Bytes)
	if f.Part > 0 {
		part = min(part, f.Part)
	}
	var err error
	if f.Err == nil || f.Did || f.Part > 0 {
		err = do(part)
	} else if c.node != nil && !errors.Is(f.Err, syscall.EINTR) {
		// The system takes what it could not write for written, and does not try
		// again: https://lwn.net/Articles/752063/
		c.node.dirty = nil
	}
	if err == nil {
		err = f.Err
	}
	if err != nil {
		return &fs.PathError{Op: c.Op, Path: c.Path, Err: err}
	}
	return nil
}

func (d *SimDisk) mkdir(path string) error {
	return d.call(SimCall{Op: "mkdir", Path: path}, func(int) error {
		above, err := d.store.findFolder(filepath.Dir(path))
		if err != nil {
			return err
		}
		if name := filepath.Base(path); name == "/" || above.names[name] != nil {
			return fs.ErrExist
		}
		above.name(simRenaming{to: filepath.Base(path), node: newSimFolder()})
		return nil
	})
}

func (d *SimDisk) open(path string, flag int, _ fs.FileMode) (file, error) {
	op := "open"
	if flag&os.O_CREATE != 0 {
		op = "create"
	}
	f := &simFile{disk: d, path: path}
	err := d.call(SimCall{Op: op, Path: path}, func(int) error {
		above, err := d.store.findFolder(filepath.Dir(path))
		if err != nil {
			return err
		}
		f.node = above.names[filepath.Base(path)]
		switch {
		case f.node == nil && flag&os.O_CREATE == 0:
			return fs.ErrNotExist
		case f.node == nil:
			f.node = new(simNode)
			above.name(simRenaming{to: filepath.Base(path), node: f.node})
		case f.node.folder():
			return syscall.EISDIR
		case flag&os.O_EXCL != 0:
			return fs.ErrExist
		case flag&os.O_TRUNC != 0:
			f.node.truncate(0)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d *SimDisk) readDir(folder string) (list []fs.DirEntry, err error) {
	err = d.call(SimCall{Op: "readdir", Path: folder}, func(int) error {
		n, err := d.store.findFolder(folder)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(n.names)) {
			list = append(list, fs.FileInfoToDirEntry(simInfo{name, n.names[name].folder(), int64(len(n.names[name].data))}))
		}
		return nil
	})
	return list, err
}

func (d *SimDisk) stat(path string) (info fs.FileInfo, err error) {
	err = d.call(SimCall{Op: "stat", Path: path}, func(int) error {
		n, err := d.store.find(path)
		if err == nil {
			info = simInfo{filepath.Base(path), n.folder(), int64(len(n.data))}
		}
		return err
	})
	return info, err
}

func (d *SimDisk) rename(from, to string) error {
	return d.call(SimCall{Op: "rename", Path: to}, func(int) error {
		n, err := d.store.find(from)
		if err != nil {
			return err
		}
		above, err := d.store.findFolder(filepath.Dir(to))
		if err != nil {
			return err
		}
		if filepath.Dir(from) != filepath.Dir(to) {
			return syscall.EXDEV
		}
		above.name(simRenaming{from: filepath.Base(from), to: filepath.Base(to), node: n})
		return nil
	})
}

func (d *SimDisk) remove(path string) error {
	return d.call(SimCall{Op: "remove", Path: path}, func(int) error {
		if _, err := d.store.find(path); err != nil {
			return err
		}
		above, _ := d.store.find(filepath.Dir(path))
		above.name(simRenaming{from: filepath.Base(path)})
		return nil
	})
}

func (d *SimDisk) syncDir(folder string) error {
	return d.call(SimCall{Op: "syncdir", Path: folder}, func(int) error {
		n, err := d.store.findFolder(folder)
		if err == nil {
			n.lasting, n.since = maps.Clone(n.names), nil
		}
		return err
	})
}

func (d *SimDisk) lock(folder string) (io.Closer, error) {
	var n *simNode
	err := d.call(SimCall{Op: "lock", Path: folder}, func(int) (err error) {
		if n, err = d.store.findFolder(folder); err != nil {
			return err
		}
		if d.store.locks[n] != nil {
			return ErrLocked
		}
		d.store.locks[n] = d
		return nil
	})
	if err != nil {
		return nil, err
	}
	return simLock{d, n}, nil
}

type simLock struct {
	disk   *SimDisk
	folder *simNode
}

func (l simLock) Close() error {
	l.disk.store.mu.Lock()
	defer l.disk.store.mu.Unlock()
	if l.disk.store.locks[l.folder] == l.disk {
		delete(l.disk.store.locks, l.folder)
	}
	return nil
}

// simFile is an open file. It is the file's for as long as it is open, whatever
// becomes of its name.
type simFile struct {
	disk *SimDisk
	path string
	node *simNode
}

func (f *simFile) ReadAt(b []byte, at int64) (n int, err error) {
	err = f.disk.call(SimCall{Op: "read", Path: f.path}, func(int) error {
		if at < int64(len(f.node.data)) {
			n = copy(b, f.node.data[at:])
		}
		return nil
	})
	if err == nil && n < len(b) {
		err = io.EOF
	}
	return n, err
}

func (f *simFile) WriteAt(b []byte, at int64) (n int, err error) {
	err = f.disk.call(SimCall{Op: "write", Path: f.path, At: at, Bytes: b}, func(part int) error {
		free := f.disk.store.space - f.disk.store.used() + f.node.takes(int64(len(f.node.data)))
		n = int(max(0, min(int64(part), free-at)))
		f.node.write(b[:n], at)
		if n < part {
			return syscall.ENOSPC
		}
		return nil
	})
	return n, err
}

func (f *simFile) Truncate(size int64) error {
	return f.disk.call(SimCall{Op: "truncate", Path: f.path}, func(int) error {
		f.node.held = 0 // as ext4 and XFS have it
		f.node.truncate(size)
		return nil
	})
}

func (f *simFile) sync() error {
	return f.disk.call(SimCall{Op: "sync", Path: f.path, node: f.node}, func(int) error {
		for s := range f.node.dirty {
			delete(f.node.may, s)
		}
		f.node.dirty, f.node.sizes = nil, nil
		return nil
	})
}

func (f *simFile) reserve(n int64) error {
	return f.disk.call(SimCall{Op: "reserve", Path: f.path}, func(int) error {
		free := f.disk.store.space - f.disk.store.used() + f.node.takes(int64(len(f.node.data)))
		if n > free {
			return syscall.ENOSPC
		}
		f.node.held = max(f.node.held, n)
		return nil
	})
}

func (f *simFile) free() (free, total int64, err error) {
	f.disk.store.mu.Lock()
	defer f.disk.store.mu.Unlock()
	return max(0, f.disk.store.space-f.disk.store.used()), f.disk.store.space, nil
}

func (f *simFile) isAt(path string) (size int64, is bool) {
	err := f.disk.call(SimCall{Op: "isat", Path: path}, func(int) error {
		n, err := f.disk.store.find(path)
		is = n == f.node
		size = int64(len(f.node.data))
		return err
	})
	return size, err == nil && is
}

func (f *simFile) Close() error { return nil }

// write puts b there, in the system's memory.
func (n *simNode) write(b []byte, at int64) {
	if end := at + int64(len(b)); end > int64(len(n.data)) {
		n.resize(end)
	}
	n.touch(at, at+int64(len(b)), func() { copy(n.data[at:], b) })
}

// truncate cuts the file or makes it longer by zeros.
func (n *simNode) truncate(size int64) {
	old := int64(len(n.data))
	if size < old {
		n.touch(size, old, func() { clear(n.data[size:]) })
	}
	if size != old {
		n.resize(size)
	}
}

func (n *simNode) resize(size int64) {
	if len(n.sizes) == 0 {
		n.sizes = []int64{int64(len(n.data))}
	}
	n.sizes = append(n.sizes, size)
	if grow := size - int64(len(n.data)); grow > 0 {
		n.data = append(n.data, make([]byte, grow)...)
	}
	n.data = n.data[:size]
}

// touch keeps what the sectors from here to there have been, and are after change.
func (n *simNode) touch(from, to int64, change func()) {
	if from >= to {
		return
	}
	if n.may == nil {
		n.may = map[int64][][]byte{}
	}
	if n.dirty == nil {
		n.dirty = map[int64]bool{}
	}
	first, last := from/sector, (to-1)/sector
	version := func(s int64) []byte {
		v := make([]byte, sector)
		copy(v, n.data[s*sector:])
		return v
	}
	for s := first; s <= last; s++ {
		if n.may[s] == nil {
			n.may[s] = [][]byte{version(s)}
		}
	}
	change()
	for s := first; s <= last; s++ {
		n.may[s] = append(n.may[s], version(s))
		n.dirty[s] = true
	}
}

type simInfo struct {
	name   string
	folder bool
	size   int64
}

func (i simInfo) Name() string       { return i.name }
func (i simInfo) Size() int64        { return i.size }
func (i simInfo) ModTime() time.Time { return time.Time{} }
func (i simInfo) IsDir() bool        { return i.folder }
func (i simInfo) Sys() any           { return nil }
func (i simInfo) Mode() fs.FileMode {
	if i.folder {
		return fs.ModeDir | 0o700
	}
	return 0o600
}

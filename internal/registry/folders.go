package registry

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// folders watches the folders that decide what file path leads to. The zero
// value with a path and failed watches none until follow.
type folders struct {
	path    string
	failed  func(error) // told when they cannot be watched any more
	deaf    bool        // they could not be watched
	watcher *fsnotify.Watcher
	watched []os.FileInfo
}

// follow watches the folders that path leads through now. They are compared by
// what they are and not by name: the kernel goes on watching one that has been
// moved away.
func (f *folders) follow() {
	names, _ := along(f.path)
	var now []os.FileInfo
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			now = append(now, info)
		}
	}
	if f.watcher != nil && slices.EqualFunc(now, f.watched, os.SameFile) {
		return
	}
	f.close()
	if err := f.open(names); err != nil {
		f.close()
		if !f.deaf {
			f.failed(err)
		}
		f.deaf = true
		return
	}
	f.deaf, f.watched = false, now
}

func (f *folders) open(names []string) (err error) {
	if f.watcher, err = fsnotify.NewWatcher(); err != nil {
		f.watcher = nil
		return err
	}
	for _, name := range names {
		if err := f.watcher.Add(name); err != nil {
			return err
		}
	}
	return nil
}

func (f *folders) events() <-chan fsnotify.Event {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.Events
}

func (f *folders) errors() <-chan error {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.Errors
}

func (f *folders) close() {
	if f.watcher != nil {
		_ = f.watcher.Close()
	}
	f.watcher, f.watched = nil, nil
}

// along follows the symbolic links in path. It returns the folders of the links
// and of the file, each of which can make path lead elsewhere, and the path of the
// file without links; of what is not there, the path as far as it is known.
// Where the links lead in a circle it gives up, and what it returns is a link.
func along(path string) (through []string, target string) {
	const mostLinks = 40 // as the kernel has it
	left, links := path, 0
	for {
		if filepath.IsAbs(left) {
			target = "/"
		}
		left = strings.TrimLeft(left, "/")
		if left == "" {
			through = append(through, filepath.Dir(target))
			slices.Sort(through)
			return slices.Compact(through), target
		}
		// One name after the other: what ".." means depends on the links before it.
		name, rest, _ := strings.Cut(left, "/")
		step := filepath.Join(target, name)
		to, err := os.Readlink(step)
		if err != nil || links == mostLinks {
			target, left = step, rest
			continue
		}
		links++
		through = append(through, filepath.Dir(step))
		left = to + "/" + rest
	}
}

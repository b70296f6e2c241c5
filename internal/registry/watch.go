package registry

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/jonboulle/clockwork"
)

const (
	// settle is how long the file must have stayed as it is before it is read:
	// an editor writes in several steps, and half a file is a wrong one.
	settle = 250 * time.Millisecond
	// poll is the net under the events, which some file systems do not send.
	poll = 30 * time.Second
)

// Watch calls changed at once, after the file at path may have become another
// one, and every 30 s in any case, until ctx ends; it returns then. Whatever state the
// file ends in, some call of changed begins after it has; states in between may
// be skipped. It is for changed to find out whether the bytes are new.
//
// The folders are watched, not the file: editors and Kubernetes put another
// file, or another symbolic link, in its place. Where no folder can be watched
// failed is told, once, and looking every 30 s remains. changed and failed are
// called from this goroutine, one at a time.
func Watch(ctx context.Context, clock clockwork.Clock, path string, changed func(), failed func(error)) {
	f := folders{path: path}
	defer f.close()
	if err := f.open(); err != nil {
		failed(err)
	}
	every := clock.NewTicker(poll)
	defer every.Stop()
	quiet := clock.NewTimer(poll)
	defer quiet.Stop()
	quiet.Stop()

	last := lookAt(path)
	changed() // the file may have changed since the caller read it
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.errors():
			// Lost events are no news: the state is looked at, not the events.
		case <-f.events():
		case <-quiet.Chan():
			if now := lookAt(path); now == last {
				f.follow()
				changed()
				continue
			}
		case <-every.Chan():
			changed()
		}
		if now := lookAt(path); now != last {
			last = now
			quiet.Reset(settle)
		}
	}
}

// sight tells one state of a file from another, as far as that can be seen
// without reading it. The zero sight is of a file that is not there.
type sight struct {
	modified time.Time
	size     int64
	target   string // where the symbolic links lead
}

func lookAt(path string) sight {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return sight{}
	}
	info, err := os.Stat(target)
	if err != nil {
		return sight{}
	}
	return sight{info.ModTime(), info.Size(), target}
}

// folders watches the folder that holds path and the one that its symbolic
// links lead to.
type folders struct {
	path    string
	watcher *fsnotify.Watcher // nil: none could be made
}

func (f *folders) open() (err error) {
	if f.watcher, err = fsnotify.NewWatcher(); err != nil {
		f.watcher = nil
		return err
	}
	f.follow()
	return f.watcher.Add(filepath.Dir(f.path))
}

// follow watches the folder where the file is now. A folder that was deleted
// has left the watcher by itself.
func (f *folders) follow() {
	if f.watcher == nil {
		return
	}
	if target, err := filepath.EvalSymlinks(f.path); err == nil {
		_ = f.watcher.Add(filepath.Dir(target)) // the net holds where this fails
	}
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
}

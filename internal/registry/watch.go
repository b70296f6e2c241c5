package registry

import (
	"context"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/jonboulle/clockwork"
)

const (
	// settle is how long the file must have stayed as it is before it is read:
	// an editor writes in several steps, and half a file is a wrong one.
	settle = 250 * time.Millisecond
	// missing is how long it must have been gone. Whoever removes a file before
	// there is the next one does not mean that there shall be none.
	missing = 2 * time.Second
	// poll is the net under the events, which some file systems do not send.
	poll = 30 * time.Second
)

// Watch calls changed at once, after the file at path may have become another
// one, and every 30 s in any case, until ctx ends; it returns then. Whatever state the
// file ends in, some call of changed begins after it has; states in between may
// be skipped. It is for changed to find out whether the bytes are new.
//
// The folders are watched, not the file: editors and Kubernetes put another
// file, or another symbolic link, in its place. When they cannot be watched any
// more failed is told, and looking every 30 s remains. changed and failed are
// called from this goroutine, one at a time.
func Watch(ctx context.Context, clock clockwork.Clock, path string, changed func(), failed func(error)) {
	w := folders{path: path, failed: failed}
	defer w.close()
	w.follow()
	every := clock.NewTicker(poll)
	defer every.Stop()
	quiet := clock.NewTimer(poll)
	defer quiet.Stop()
	quiet.Stop()

	file := rest{seen: lookAt(path)}
	changed() // the file may have changed since the caller read it
	for {
		why := event
		select {
		case <-ctx.Done():
			return
		case <-w.errors():
			// Lost events are no news: the state is looked at, not the events.
		case <-w.events():
		case <-quiet.Chan():
			why = calm
			w.follow()
		case <-every.Chan():
			why = tick
			w.follow()
		}
		read, again := file.look(lookAt(path), why)
		if again > 0 {
			quiet.Stop()
			select {
			case <-quiet.Chan(): // the end of the wait before, which no longer counts
			default:
			}
			quiet.Reset(again)
		}
		if read {
			changed()
		}
	}
}

// occasion is why the file is looked at.
type occasion int

const (
	event occasion = iota // something happened in a folder
	calm                  // it has not been seen to change for as long as was asked
	tick                  // the net
)

// rest judges when a file may be read.
type rest struct {
	seen     sight
	restless bool          // it has changed since it was read
	late     bool          // and so it was at the last tick
	gone     time.Duration // for how long it has been, at least
}

// look takes in how the file looks now. It reports whether to read it, and when
// to look again where that is earlier than the next tick.
func (r *rest) look(now sight, why occasion) (read bool, again time.Duration) {
	moved, calmed := now != r.seen, why == calm
	if moved {
		r.seen, r.restless = now, true
		r.gone, again = 0, settle
	}
	if now == (sight{}) && calmed && !moved {
		// Nothing tells when its folder comes back, if that is gone too.
		r.gone += settle
		again = settle
		if calmed = r.gone >= missing; calmed {
			again = missing
		}
	}
	switch {
	case calmed && r.restless && !moved, why == tick && !r.restless, why == tick && r.late:
		// What never comes to rest is read as it is, from time to time.
		r.restless, r.late = false, false
		return true, again
	case why == tick:
		r.late = true
	}
	return false, again
}

// sight tells one state of a file from another, as far as that can be seen
// without reading it. The zero sight is of a file that is not there.
type sight struct {
	modified time.Time
	size     int64
	mode     fs.FileMode
	inode    uint64
	target   string // where the symbolic links lead
}

func lookAt(path string) sight {
	_, target := along(path)
	info, err := os.Stat(target)
	if err != nil {
		return sight{}
	}
	s := sight{modified: info.ModTime(), size: info.Size(), mode: info.Mode(), target: target}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino // another file may be as long and, by cp -p, as old
	}
	return s
}

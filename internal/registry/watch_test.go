package registry_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"go.uber.org/goleak"

	"agentgw/internal/registry"
)

// watched is a file that is watched, and what the watcher read of it.
type watched struct {
	t     *testing.T
	clock *clockwork.FakeClock
	path  string
	read  chan string
	last  string // what it became before
}

func watch(t *testing.T, path string, failed func(error)) *watched {
	t.Helper()
	w := &watched{t: t, clock: clockwork.NewFakeClock(), path: path, read: make(chan string, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		registry.Watch(ctx, w.clock, path, func() {
			data, err := os.ReadFile(path)
			if err != nil {
				data = []byte("gone")
			}
			w.read <- string(data)
		}, failed)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	<-w.read // as it was at the start
	return w
}

// becomes says that the watcher reads want once all is quiet, however often it
// had to begin its wait anew, and long before its poll. It has two timers running
// then: the poll, and the wait for quiet after it saw a change. It may have read the
// state before once more: one that is written between its look and its read it has
// read already, and sees afterwards.
func (w *watched) becomes(want string) {
	w.t.Helper()
	began := w.clock.Now()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		waits := w.clock.BlockUntilContext(ctx, 2) == nil
		cancel()
		if waits {
			w.clock.Advance(250 * time.Millisecond)
		}
		select {
		case got := <-w.read:
			if got == w.last && got != want {
				continue
			}
			w.last = got
			if after := w.clock.Since(began); got != want || after > 5*time.Second {
				w.t.Fatalf("read %q after %v, want %q", got, after, want)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
	w.t.Fatalf("the watcher never noticed %q", want)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// drills is few, or with DRILLS=full many.
func drills(few, many int) int {
	if os.Getenv("DRILLS") == "full" {
		return many
	}
	return few
}

// TestWatchSeesEveryFinalState: however a new state comes about, it is read.
func TestWatchSeesEveryFinalState(t *testing.T) {
	defer goleak.VerifyNone(t)
	folder := filepath.Join(t.TempDir(), "folder")
	must(t, os.Mkdir(folder, 0o700))
	path := filepath.Join(folder, "registry.yaml")
	must(t, os.WriteFile(path, []byte("0"), 0o600))
	t.Run("files", func(t *testing.T) {
		w := watch(t, path, func(err error) { t.Error(err) })
		for round := range drills(10, 200) {
			text := fmt.Sprintf("renamed %d", round)
			must(t, os.WriteFile(path+".new", []byte(text), 0o600))
			must(t, os.Rename(path+".new", path))
			w.becomes(text)

			text = fmt.Sprintf("moved aside %d", round) // as vi does
			must(t, os.Rename(path, path+"~"))
			must(t, os.WriteFile(path, []byte(text), 0o600))
			must(t, os.Remove(path+"~"))
			w.becomes(text)

			text = fmt.Sprintf("in two writes %d", round)
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
			must(t, err)
			_, err = f.WriteString(text[:5])
			must(t, err)
			_, err = f.WriteString(text[5:])
			must(t, err)
			must(t, f.Close())
			w.becomes(text)

			// Another file as long and as old, as cp -p leaves it.
			info, err := os.Stat(path)
			must(t, err)
			text = strings.ToUpper(text)
			must(t, os.WriteFile(path+".new", []byte(text), 0o600))
			must(t, os.Chtimes(path+".new", time.Time{}, info.ModTime()))
			must(t, os.Rename(path+".new", path))
			w.becomes(text)

			must(t, os.Chmod(path, 0o644)) // which may be what was wrong with it
			w.becomes(text)

			must(t, os.Remove(path))
			w.becomes("gone")
			must(t, os.WriteFile(path, fmt.Append(nil, round), 0o600))
			w.becomes(fmt.Sprint(round))
		}
	})
}

// TestWatchFollowsItsFolder: a folder that is put in the place of another one is
// watched from then on, and so is one whose parent was, which no event tells of.
func TestWatchFollowsItsFolder(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "parent")
	folder := filepath.Join(parent, "folder")
	path := filepath.Join(folder, "registry.yaml")
	state := func(name, text string) {
		must(t, os.Mkdir(name, 0o700))
		must(t, os.WriteFile(filepath.Join(name, "registry.yaml"), []byte(text), 0o600))
	}
	must(t, os.Mkdir(parent, 0o700))
	state(folder, "0")
	w := watch(t, path, func(err error) { t.Error(err) })
	edited := func(text string) {
		t.Helper()
		must(t, os.WriteFile(path, []byte(text), 0o600))
		w.becomes(text)
	}
	for round := range 3 {
		text := fmt.Sprint("folder ", round)
		state(folder+".new", text)
		must(t, os.Rename(folder, folder+".old"))
		must(t, os.Rename(folder+".new", folder))
		w.becomes(text)
		edited("edited in the " + text)
		must(t, os.RemoveAll(folder+".old"))

		text = fmt.Sprint("parent ", round)
		must(t, os.Mkdir(parent+".new", 0o700))
		state(filepath.Join(parent+".new", "folder"), text)
		must(t, os.Rename(parent, parent+".old"))
		must(t, os.Rename(parent+".new", parent))
		w.clock.Advance(30 * time.Second)
		w.becomes(text)
		edited("edited in the " + text)
		must(t, os.RemoveAll(parent+".old"))

		// The very same file, of which nothing is to be seen but by an edit.
		must(t, os.MkdirAll(filepath.Join(parent+".new", "folder"), 0o700))
		must(t, os.Link(path, filepath.Join(parent+".new", "folder", "registry.yaml")))
		must(t, os.Rename(parent, parent+".old"))
		must(t, os.Rename(parent+".new", parent))
		w.clock.Advance(30 * time.Second)
		w.becomes("edited in the " + text)
		edited("edited in the same file")
		must(t, os.RemoveAll(parent+".old"))
	}
}

// TestWatchFollowsEveryLink: the folder may be reached through a link, which is
// what a deployment changes, and links may lead through others.
func TestWatchFollowsEveryLink(t *testing.T) {
	root := t.TempDir()
	current := filepath.Join(root, "current")
	for release := range 4 {
		folder := filepath.Join(root, "releases", fmt.Sprint(release))
		must(t, os.MkdirAll(folder, 0o700))
		must(t, os.WriteFile(filepath.Join(folder, "registry.yaml"), fmt.Append(nil, "release ", release), 0o600))
	}
	swap := func(release int) {
		must(t, os.Symlink(fmt.Sprintf("releases/../releases/%d", release), current+".new"))
		must(t, os.Rename(current+".new", current))
	}
	swap(0)
	must(t, os.Symlink(root, filepath.Join(root, "elsewhere")))
	w := watch(t, filepath.Join(root, "elsewhere", "current", "registry.yaml"), func(err error) { t.Error(err) })
	for release := 1; release < 4; release++ {
		swap(release)
		w.becomes(fmt.Sprint("release ", release))
		must(t, os.WriteFile(filepath.Join(root, "releases", fmt.Sprint(release), "registry.yaml"), []byte("edited"), 0o600))
		w.becomes("edited")
	}
}

// TestWatchSeesMountedConfigurationSwapped: Kubernetes mounts a file as a link
// into ..data, itself a link, which is put in place by a rename; the folder of
// the old state is then deleted. Size and time may be the same as before: where
// the links lead to is not.
func TestWatchSeesMountedConfigurationSwapped(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "registry.yaml")
	swap := func(text string) {
		old, _ := os.Readlink(filepath.Join(folder, "..data"))
		state, err := os.MkdirTemp(folder, "..state")
		must(t, err)
		file := filepath.Join(state, "registry.yaml")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		must(t, os.Chtimes(file, time.Time{}, time.Unix(1, 0)))
		must(t, os.Symlink(filepath.Base(state), filepath.Join(folder, "..data_tmp")))
		must(t, os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data")))
		if old != "" {
			must(t, os.RemoveAll(filepath.Join(folder, old)))
		}
	}
	swap("state 999")
	must(t, os.Symlink(filepath.Join("..data", "registry.yaml"), path))
	w := watch(t, path, func(err error) { t.Error(err) })
	for round := range drills(50, 1000) {
		text := fmt.Sprintf("state %03d", round)
		swap(text)
		w.becomes(text)
	}
}

// TestWatchFollowsALinkElsewhere: the file may be a link to one in a folder of
// its own, which is then written to.
func TestWatchFollowsALinkElsewhere(t *testing.T) {
	path, elsewhere := filepath.Join(t.TempDir(), "registry.yaml"), filepath.Join(t.TempDir(), "real.yaml")
	must(t, os.WriteFile(elsewhere, []byte("0"), 0o600))
	must(t, os.Symlink(elsewhere, path))
	w := watch(t, path, func(err error) { t.Error(err) })
	for round := range 5 {
		text := fmt.Sprintf("elsewhere %d", round)
		must(t, os.WriteFile(elsewhere, []byte(text), 0o600))
		w.becomes(text)
	}
}

// TestWatchHasANet: a folder that cannot be watched is said once, and the file
// is looked at all the same; when the folder can be watched it is.
func TestWatchHasANet(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "not yet")
	path := filepath.Join(folder, "registry.yaml")
	told := make(chan error, 9)
	w := watch(t, path, func(err error) { told <- err })
	if err := <-told; err == nil {
		t.Error("nothing was said")
	}
	w.clock.Advance(30 * time.Second)
	if got := <-w.read; got != "gone" {
		t.Errorf("read %q", got)
	}
	must(t, os.Mkdir(folder, 0o700))
	must(t, os.WriteFile(path, []byte("there"), 0o600))
	w.clock.Advance(30 * time.Second)
	w.becomes("there")
	must(t, os.WriteFile(path, []byte("edited"), 0o600))
	w.becomes("edited")
	if n := len(told); n > 0 {
		t.Errorf("it was said %d times more", n)
	}
}

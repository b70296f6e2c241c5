package receipts_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// TestNothingIsAcknowledgedByAnAbortedFileSystem: ext4 gives up in the middle of a
// load, as after an error of its own or of the device, and is mounted again: each
// receipt that was acknowledged is there. It needs root and loop devices.
func TestNothingIsAcknowledgedByAnAbortedFileSystem(t *testing.T) {
	if !drill() {
		t.Skip("a file system that is given up was not tried: DRILLS=full as root tries it")
	}
	const times = 40
	at := t.TempDir()
	image, mount := filepath.Join(at, "image"), filepath.Join(at, "mount")
	command := func(name string, args ...string) error {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
		}
		return nil
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(mount, 0o700))
	t.Cleanup(func() { _ = command("umount", mount) }) // of a run that failed
	lost, acked := 0, 0
	for run := range times {
		must(os.RemoveAll(image))
		must(command("truncate", "-s", "64M", image))
		if err := command("mkfs.ext4", "-q", "-F", image); err != nil {
			t.Skip(err)
		}
		if err := command("mount", "-o", "loop,errors=remount-ro", image, mount); err != nil {
			t.Skip(err)
		}
		dir := filepath.Join(mount, "data")
		o := receipts.Options{Clock: clockwork.NewRealClock(), Replica: "gw-1"}
		l, err := receipts.Open(dir, o)
		must(err)
		var mu sync.Mutex
		told := map[string]bool{}
		var wg sync.WaitGroup
		for w := range 16 {
			wg.Go(func() {
				for i := 0; ; i++ {
					id := fmt.Sprintf("%d-%d", w, i)
					if _, err := l.Append(outcome(id)); err != nil {
						return
					}
					mu.Lock()
					told[id] = true
					mu.Unlock()
				}
			})
		}
		time.Sleep(time.Duration(10+13*(run%10)) * time.Millisecond)
		must(command("mount", "-o", "remount,abort", mount))
		wg.Wait()
		_ = l.Close()
		must(command("umount", mount))
		must(command("mount", "-o", "loop", image, mount))
		l, err = receipts.Open(dir, o)
		must(err)
		must(l.Close())
		there := map[string]bool{}
		must(receipts.Scan(filepath.Join(dir, "receipts"), func(s receipts.Stored) error {
			there[strings.Clone(s.Record.ID)] = true
			return nil
		}))
		var missing []string
		for id := range told {
			if !there[id] {
				missing = append(missing, id)
			}
		}
		acked += len(told)
		if len(missing) > 0 {
			lost++
			t.Errorf("run %d: of %d acknowledged receipts %d are gone: %v", run, len(told), len(missing), missing)
		}
		must(command("umount", mount))
	}
	t.Logf("%d of %d runs lost receipts; %d were acknowledged", lost, times, acked)
}

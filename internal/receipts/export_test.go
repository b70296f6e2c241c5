package receipts

import "os"

// What external tests may change or look at.

func SetSegmentSize(o *Options, n int64) { o.segmentSize = n }

func SetKeepRecent(o *Options, n int) { o.keepRecent = n }

func SetNewID(o *Options, f func() string) { o.newID = f }

// SetDisk puts hooks before the real disk; a nil hook is none.
func SetDisk(o *Options, write func(b []byte, at int64) error, sync func() error) {
	o.disk = &disk{
		write: func(f *os.File, b []byte, at int64) error {
			if write != nil {
				if err := write(b, at); err != nil {
					return err
				}
			}
			return realDisk.write(f, b, at)
		},
		sync: func(f *os.File) error {
			if sync != nil {
				if err := sync(); err != nil {
					return err
				}
			}
			return realDisk.sync(f)
		},
	}
}

// SetNoSync leaves out waiting for the disk.
func SetNoSync(o *Options) {
	o.disk = &disk{write: realDisk.write, sync: func(*os.File) error { return nil }}
}

// Skim is what a start reads of a record line.
func Skim(line []byte) (Record, bool) { return skim(line) }

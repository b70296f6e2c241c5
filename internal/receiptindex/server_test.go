package receiptindex_test

import (
	"database/sql"
	"os"
	"sync"
	"testing"
	"time"

	"agentgw/internal/pgtest"
	"agentgw/internal/receiptindex"
)

// shared is the one server of the tests that let it run.
var shared struct {
	sync.Mutex
	*pgtest.Server
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.Server != nil {
		shared.End()
	}
	os.Exit(code)
}

// database is one test's.
type database struct {
	t      *testing.T
	server *pgtest.Server
	url    string
}

// newDatabase makes a database in the server that all share.
func newDatabase(t *testing.T) *database {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.Server == nil {
		shared.Server = pgtest.Begin(t)
	}
	return &database{t, shared.Server, shared.Database(t)}
}

// ownServer makes one in a server that the test may stop.
func ownServer(t *testing.T) *database {
	t.Helper()
	s := pgtest.Start(t)
	return &database{t, s, s.Database(t)}
}

// open returns the index that is in it.
func (d *database) open() *receiptindex.Index {
	d.t.Helper()
	x, err := receiptindex.Open(d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = x.Close() })
	return x
}

// db is for looking behind the index's back.
func (d *database) db() *sql.DB {
	d.t.Helper()
	db, err := sql.Open("pgx", d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = db.Close() })
	return db
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

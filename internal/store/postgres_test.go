package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/internal/pgtest"
	"agentgw/internal/store"
	"agentgw/internal/store/storetest"
)

// shared is the one server of the tests that let it run.
var shared struct {
	sync.Mutex
	*pgtest.Server
}

func endShared() {
	if shared.Server != nil {
		shared.End()
	}
}

// newDatabase makes a database in the server that all share.
func newDatabase(t *testing.T) (url string) {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.Server == nil {
		shared.Server = pgtest.Begin(t)
	}
	return shared.Database(t)
}

func openPostgres(t *testing.T, url string) *store.Store {
	t.Helper()
	s, err := store.OpenPostgres(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// look is a way to the tables behind the store's back.
func look(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// TestPostgres: what holds of a file holds of PostgreSQL, each state in a schema of its own, and
// of one behind a pooler, where statements cannot be prepared.
func TestPostgres(t *testing.T) {
	database := newDatabase(t)
	db, schemas := look(t, database), 0
	for name, parameters := range map[string]string{"direct": "", "pooled": "&default_query_exec_mode=exec"} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) func() storetest.Store {
				schemas++
				if _, err := db.Exec(fmt.Sprintf(`CREATE SCHEMA s%d`, schemas)); err != nil {
					t.Fatal(err)
				}
				url := fmt.Sprintf("%s&search_path=s%d%s", database, schemas, parameters)
				return func() storetest.Store { return openPostgres(t, url) }
			})
		})
	}
}

// TestOpenPostgresTellsWhatIsWrong, and not the password.
func TestOpenPostgresTellsWhatIsWrong(t *testing.T) {
	url := newDatabase(t)
	for _, c := range []struct {
		url, want string
		away      bool
	}{
		{"mysql://u:s3cr3t@h/d", "postgres://", false},
		{"postgres://u:s3cr3t@127.0.0.1:1/d?sslmode=disable", "127.0.0.1:1", true},
		{strings.Replace(url, "postgres@", "nobody:s3cr3t@", 1), "nobody", false},
		{strings.Replace(url, "/test", "/none", 1), "does not exist", false},
		{url + "&sslmod=disable", "sslmod", false},
		{strings.Replace(url, "sslmode=disable", "sslmode=require", 1), "TLS", false},
	} {
		_, err := store.OpenPostgres(t.Context(), c.url)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v; want %q in it, and no password", c.url, err, c.want)
		}
		if errors.Is(err, store.ErrAway) != c.away {
			t.Errorf("%s: %v; is it away? %v", c.url, err, !c.away)
		}
	}
}

func TestNewerPostgresTablesAreRefused(t *testing.T) {
	url := newDatabase(t)
	openPostgres(t, url)
	if _, err := look(t, url).Exec(`UPDATE state_version SET version = 99`); err != nil {
		t.Fatal(err)
	}
	if _, err := store.OpenPostgres(t.Context(), url); !errors.Is(err, store.ErrNewer) || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("error is %v", err)
	}
}

// TestManyOpenPostgresAtOnce: replicas that start together make the tables once.
func TestManyOpenPostgresAtOnce(t *testing.T) {
	url := newDatabase(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s, err := store.OpenPostgres(t.Context(), url)
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.AddKey(t.Context(), store.Key{ID: fmt.Sprint(i), Digest: [32]byte{byte(i)}}); err != nil {
				t.Error(err)
			}
			_ = s.Close()
		})
	}
	wg.Wait()
	if keys, err := openPostgres(t, url).Keys(t.Context()); err != nil || len(keys) != 8 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
}

// TestAReplicaNeedsNoRightToMakeTables, once they are there.
func TestAReplicaNeedsNoRightToMakeTables(t *testing.T) {
	url := newDatabase(t)
	openPostgres(t, url)
	role := fmt.Sprintf("replica%d", time.Now().UnixNano())
	if _, err := look(t, url).Exec(fmt.Sprintf(`CREATE ROLE %s LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO %s; GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO %s`, role, role, role)); err != nil {
		t.Fatal(err)
	}
	s := openPostgres(t, strings.Replace(url, "postgres@", role+"@", 1))
	if err := s.AddKey(t.Context(), store.Key{ID: "k"}); err != nil {
		t.Error(err)
	}
	if err := s.AddRoot(t.Context(), store.Root{ID: "r", Wrapped: []byte{1}}, ""); err != nil {
		t.Error(err)
	}
}

// applied has the first n migrations of a folder run.
func applied(t *testing.T, db *sql.DB, folder string, n int) {
	t.Helper()
	files, err := fs.ReadDir(store.Migrations, "migrations/"+folder)
	if err != nil || n > len(files) {
		t.Fatal(len(files), err)
	}
	for _, file := range files[:n] {
		text, err := store.Migrations.ReadFile("migrations/" + folder + "/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(string(text)); err != nil {
			t.Fatalf("%s: %v", file.Name(), err)
		}
	}
}

// TestMigrationsFromEachVersion: tables of every earlier version, with a key and a credential in
// them, become the same as new ones, and what was in them is still there.
func TestMigrationsFromEachVersion(t *testing.T) {
	count := func(folder string) int {
		files, err := fs.ReadDir(store.Migrations, "migrations/"+folder)
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	// as is what tables there are, and what they hold is made of.
	as := func(t *testing.T, db *sql.DB, query string) (lines []string) {
		t.Helper()
		rows, err := db.Query(query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
		return lines
	}
	const ofSQLite = `SELECT t.name || '.' || c.name || ' ' || c.type || ' ' || c."notnull" FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'
		UNION ALL SELECT coalesce(sql, name) FROM sqlite_schema WHERE type <> 'table' ORDER BY 1`
	const ofPostgres = `SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || coalesce(collation_name, '') FROM information_schema.columns WHERE table_schema = 'public'
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
		UNION ALL SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
		UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
		ORDER BY 1`
	const key = `INSERT INTO keys (id, digest, services, actions, users, tenant, "user", space, org, created_at, not_before, not_after, revoked_at%s)
		VALUES ('old', %s, '["*"]', '[]', '["*"]', '', '', '', '', 1, 0, 0, 0%s)`
	check := func(t *testing.T, s *store.Store, had bool) {
		t.Helper()
		keys, err := s.Keys(t.Context())
		if err != nil || had && (len(keys) != 1 || keys[0].ID != "old" || keys[0].Digest[0] != 'd') {
			t.Errorf("%+v, %v", keys, err)
		}
	}
	fresh := t.TempDir()
	open(t, fresh)
	for n := range count("sqlite") {
		t.Run(fmt.Sprint("sqlite ", n), func(t *testing.T) {
			folder := t.TempDir()
			db, err := sql.Open("sqlite", filepath.Join(folder, store.FileName))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			applied(t, db, "sqlite", n)
			if n > 0 {
				if _, err := db.Exec(fmt.Sprintf(key, "", `CAST('`+strings.Repeat("d", 32)+`' AS BLOB)`, "")); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := db.Exec(fmt.Sprintf(`PRAGMA user_version = %d`, n)); err != nil {
				t.Fatal(err)
			}
			check(t, open(t, folder), n > 0)
			other, err := sql.Open("sqlite", filepath.Join(fresh, store.FileName))
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			if got, want := as(t, db, ofSQLite), as(t, other, ofSQLite); fmt.Sprint(got) != fmt.Sprint(want) || len(want) < 40 {
				t.Errorf("the tables are\n%s\nand new ones\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
	freshURL := newDatabase(t)
	openPostgres(t, freshURL)
	for n := range count("postgres") {
		t.Run(fmt.Sprint("postgres ", n), func(t *testing.T) {
			url := newDatabase(t)
			db := look(t, url)
			if n > 0 {
				if _, err := db.Exec(fmt.Sprintf(`CREATE TABLE state_version (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL); INSERT INTO state_version VALUES (1, %d)`, n)); err != nil {
					t.Fatal(err)
				}
			}
			applied(t, db, "postgres", n)
			if n > 0 {
				if _, err := db.Exec(fmt.Sprintf(key, ", retiring_not_after", `convert_to('`+strings.Repeat("d", 32)+`', 'UTF8')`, ", 0")); err != nil {
					t.Fatal(err)
				}
			}
			check(t, openPostgres(t, url), n > 0)
			if got, want := as(t, db, ofPostgres), as(t, look(t, freshURL), ofPostgres); fmt.Sprint(got) != fmt.Sprint(want) || len(want) < 40 {
				t.Errorf("the tables are\n%s\nand new ones\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// TestAMigrationThatFailsLeavesNothing: tables of somebody else's are in the way.
func TestAMigrationThatFailsLeavesNothing(t *testing.T) {
	url := newDatabase(t)
	db := look(t, url)
	if _, err := db.Exec(`CREATE TABLE links (theirs TEXT)`); err != nil {
		t.Fatal(err)
	}
	if _, err := store.OpenPostgres(t.Context(), url); err == nil || !strings.Contains(err.Error(), `"links" already exists`) {
		t.Errorf("error is %v", err)
	}
	var tables int
	if err := db.QueryRow(`SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'`).Scan(&tables); err != nil || tables != 1 {
		t.Errorf("%d tables, %v: something was left", tables, err)
	}
}

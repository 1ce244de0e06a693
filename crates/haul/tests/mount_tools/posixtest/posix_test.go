// Runs all tests of go-fuse's package posixtest below the directory HAUL_POSIXTEST, which is in a mount of haul. Each
// gets an empty directory of its own. scripts/mount-tools builds this program, and ../posixtest.rs runs it.
package posixtest

import (
	"os"
	"path/filepath"
	"sort"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

func TestPosix(t *testing.T) {
	top := os.Getenv("HAUL_POSIXTEST")
	if top == "" {
		t.Fatal("HAUL_POSIXTEST is not set")
	}
	var names []string
	for name := range posixtest.All {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		directory := filepath.Join(top, name)
		if err := os.Mkdir(directory, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { posixtest.All[name](t, directory) })
	}
}

package tuning

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"ringlane/internal/logic/collective"
	"ringlane/internal/logic/cost"
)

// File is the content of a machine's file.
type File struct {
	Machine Machine `json:"machine"`
	Date    string  `json:"date"`
	// Parameters are those of the cost model, fitted to the last measurement.
	Parameters cost.Parameters `json:"parameters"`
	// Measured are the rules that the measurements gave, by number of ranks;
	// where there is none the model decides.
	Measured map[int]string `json:"measured"`
	// Table is what both give, as collective.ParseTable reads it.
	Table string `json:"table"`
}

// most bounds what is read: a file of this size is none of ours.
const most = 256 << 10

// Load reads the file of machine m. There being none is fs.ErrNotExist.
func Load(path string, m Machine) (f File, table collective.Table, err error) {
	fail := func(err error) (File, collective.Table, error) {
		return File{}, nil, fmt.Errorf("the tuning in %s is ignored: %w (make it anew by `ringlane bench --tune`, or remove the file)", path, err)
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil, err
	}
	if err != nil {
		return fail(err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most))
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		return fail(err)
	}
	if f.Machine != m {
		return fail(fmt.Errorf("it was measured on %+v, this is %+v", f.Machine, m))
	}
	if table, err = collective.ParseTable(f.Table); err != nil {
		return fail(err)
	}
	if !table.Complete() {
		return fail(errors.New("no rule fits every call"))
	}
	return f, table, nil
}

// Save writes f in one step: a reader sees the old file or the new one.
func (f File) Save(path string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("keep the tuning: %w", err)
	}
	temporary, err := os.CreateTemp(dir, ".tune-*")
	if err != nil {
		return fmt.Errorf("keep the tuning: %w", err)
	}
	_, err = temporary.Write(append(text, '\n'))
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		os.Remove(temporary.Name())
		return fmt.Errorf("keep the tuning: %w", err)
	}
	return nil
}

package schedule

import "testing"

func TestCollectiveNames(t *testing.T) {
	for _, c := range Collectives {
		got, err := ParseCollective(c.String())
		if err != nil || got != c || !c.Valid() {
			t.Errorf("parse %v: %v, %v", c, got, err)
		}
	}
	if len(Collectives) != len(collectives) {
		t.Errorf("%d collectives, %d names", len(Collectives), len(collectives))
	}
	if _, err := ParseCollective("all_reduce"); err == nil {
		t.Error("all_reduce is not a name")
	}
	if bad := Collective(len(collectives)); bad.Valid() || bad.String() == "" {
		t.Errorf("%v is valid", bad)
	}
}

#include "etdump/event_table.h"

"""The static model: costs estimated from shapes alone, for phones and models never measured."""

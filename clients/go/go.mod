module reveille.example/client

go 1.19
